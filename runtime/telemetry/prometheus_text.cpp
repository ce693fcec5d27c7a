#include <coxswain/runtime/telemetry/prometheus_text.hpp>

#include <coxswain/runtime/telemetry/world_member.hpp>

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace cox::metrics {
namespace {

constexpr std::array bounds{1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0, std::numeric_limits<double>::infinity()};

prometheus::MetricType type_of(Family::Kind kind) noexcept {
  switch (kind) {
    case Family::Kind::Counter: return prometheus::MetricType::Counter;
    case Family::Kind::Gauge: return prometheus::MetricType::Gauge;
    case Family::Kind::Histogram: return prometheus::MetricType::Histogram;
  }
  return prometheus::MetricType::Untyped;
}

prometheus::ClientMetric::Histogram in_seconds(const Histogram& durations) {
  prometheus::ClientMetric::Histogram histogram;
  for (const double bound : bounds) histogram.bucket.push_back({0, bound});
  durations.for_each([&histogram](std::uint64_t longest, std::uint64_t times) {
    const double seconds = static_cast<double>(longest) * 1e-9;
    histogram.sample_count += times;
    histogram.sample_sum += seconds * static_cast<double>(times);
    for (auto& bucket : histogram.bucket) {
      if (seconds <= bucket.upper_bound) bucket.cumulative_count += times;
    }
  });
  return histogram;
}

prometheus::ClientMetric metric_of(Family::Kind kind, const Family::Value& value,
                                   const std::optional<WorldMember>& member) {
  prometheus::ClientMetric metric;
  if (member) metric.label.push_back({"process", std::to_string(member->process)});
  for (const auto& [name, text] : value.labels) metric.label.push_back({name, text});
  switch (kind) {
    case Family::Kind::Counter: metric.counter.value = value.number; break;
    case Family::Kind::Gauge: metric.gauge.value = value.number; break;
    case Family::Kind::Histogram: metric.histogram = in_seconds(value.durations); break;
  }
  return metric;
}

}  // namespace

std::string prometheus_text(const MetricSet& set) {
  const auto member = world_member();
  std::vector<prometheus::MetricFamily> families;
  for (const auto& [name, family] : set.families()) {
    auto& added = families.emplace_back();
    added.name = name;
    added.help = family.help;
    added.type = type_of(family.kind);
    for (const Family::Value& value : family.values) added.metric.push_back(metric_of(family.kind, value, member));
  }
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace cox::metrics
