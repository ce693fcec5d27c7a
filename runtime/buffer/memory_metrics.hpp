#pragma once

#include <coxswain/runtime/handle/memory_usage.hpp>
#include <coxswain/runtime/telemetry/metric_set.hpp>

#include <utility>

namespace cox {

/// Adds the usage of one memory as the metrics cox_memory_*.
inline void add_memory_metrics(metrics::MetricSet& set, const metrics::Labels& labels, const MemoryUsage& usage) {
  const auto gauge = [&](const char* name, const char* help, auto value) {
    set.gauge(name, help, labels, static_cast<double>(value));
  };
  gauge("cox_memory_allocations", "Live allocations.", usage.number_allocs);
  gauge("cox_memory_in_use_bytes", "Bytes in use, as requested.", usage.bytes_in_use);
  gauge("cox_memory_padding_bytes", "Bytes in use in addition to those requested, for alignment.", usage.bytes_padding);
  gauge("cox_memory_reserved_bytes", "Bytes taken from the device.", usage.bytes_reserved);
  gauge("cox_memory_peak_in_use_bytes", "Highest bytes in use so far.", usage.peak_bytes_in_use);
  gauge("cox_memory_peak_reserved_bytes", "Highest bytes taken from the device so far.", usage.peak_bytes_reserved);
}

}  // namespace cox
