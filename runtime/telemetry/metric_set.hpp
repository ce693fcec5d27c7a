#pragma once

#include <coxswain/device_handle/base/histogram.hpp>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace cox::metrics {

/// What tells the values of one metric apart: {{"device", "host:0"}, {"stage", "Downstream"}}.
using Labels = std::vector<std::pair<std::string, std::string>>;

/// One metric with its values. A name stands for one kind of value.
struct Family {
  enum class Kind : std::uint8_t { Counter, Gauge, Histogram };

  struct Value {
    Labels labels;
    double number = 0;      ///< Of counters and gauges.
    Histogram durations{};  ///< Of histograms.
  };

  Kind kind;
  std::string help;
  std::vector<Value> values;
};

/// Values of metrics at one moment, gathered from whoever has some. Names are as Prometheus wants them: of letters,
/// digits and underscores, with the unit, counters ending in _total. Not thread-safe.
class MetricSet {
 public:
  /// What only ever grows.
  void counter(std::string_view name, std::string_view help, Labels labels, double value) {
    add(Family::Kind::Counter, name, help, {std::move(labels), value});
  }
  void gauge(std::string_view name, std::string_view help, Labels labels, double value) {
    add(Family::Kind::Gauge, name, help, {std::move(labels), value});
  }
  /// Durations; shown in seconds.
  void histogram(std::string_view name, std::string_view help, Labels labels, const Histogram& durations) {
    add(Family::Kind::Histogram, name, help, {std::move(labels), 0, durations});
  }

  [[nodiscard]] const std::map<std::string, Family, std::less<>>& families() const noexcept { return families_; }

 private:
  void add(Family::Kind kind, std::string_view name, std::string_view help, Family::Value value);

  std::map<std::string, Family, std::less<>> families_;
};

}  // namespace cox::metrics
