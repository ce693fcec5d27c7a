#pragma once

#include <coxswain/runtime/telemetry/metric_set.hpp>

#include <string>

namespace cox::metrics {

/// `set` in the text exposition format of Prometheus. Histograms have a bucket for each power of ten from 1 us to 10 s.
/// Their sums are estimates, at most 25 % too high.
[[nodiscard]] std::string prometheus_text(const MetricSet& set);

}  // namespace cox::metrics
