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

/// Labels that distinguish the values of one metric: {{"device", "host:0"}, {"stage", "Downstream"}}.
using Labels = std::vector<std::pair<std::string, std::string>>;

/// One metric with its values. All values of a name have one kind.
struct Family {
  enum class Kind : std::uint8_t { Counter, Gauge, Histogram };

  struct Value {
    Labels labels;
    double number = 0;      ///< For counters and gauges.
    Histogram durations{};  ///< For histograms.
  };

  Kind kind;
  std::string help;
  std::vector<Value> values;
};

/// Values of metrics at one moment, gathered from several sources. Names follow the rules of Prometheus: letters,
/// digits and underscores, with the unit; names of counters end in _total. Not thread-safe.
class MetricSet {
 public:
  /// Adds a value that never decreases.
  void counter(std::string_view name, std::string_view help, Labels labels, double value) {
    add(Family::Kind::Counter, name, help, {std::move(labels), value});
  }
  void gauge(std::string_view name, std::string_view help, Labels labels, double value) {
    add(Family::Kind::Gauge, name, help, {std::move(labels), value});
  }
  /// Adds a distribution of durations; exported in seconds.
  void histogram(std::string_view name, std::string_view help, Labels labels, const Histogram& durations) {
    add(Family::Kind::Histogram, name, help, {std::move(labels), 0, durations});
  }

  [[nodiscard]] const std::map<std::string, Family, std::less<>>& families() const noexcept { return families_; }

 private:
  void add(Family::Kind kind, std::string_view name, std::string_view help, Family::Value value);

  std::map<std::string, Family, std::less<>> families_;
};

}  // namespace cox::metrics
