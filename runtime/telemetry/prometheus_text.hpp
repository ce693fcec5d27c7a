#pragma once

#include <coxswain/runtime/telemetry/metric_set.hpp>

#include <string>

namespace cox::metrics {

/// `set` in Prometheus' text exposition format. Histograms have a bucket for each power of ten from 1 us to 10 s;
/// their sums are estimates, at most 25 % too high.
[[nodiscard]] std::string prometheus_text(const MetricSet& set);

}  // namespace cox::metrics
