#pragma once

#include <coxswain/runtime/telemetry/metric_set.hpp>

#include <cstdint>
#include <functional>
#include <string>

/// Figures of the process, asked for when somebody wants them: nothing is counted for their sake that is not counted
/// anyway. All functions: any thread.
namespace cox::metrics {

/// Adds what somebody counts to a set. Called on the thread that asks for metrics, one call at a time; must not wait
/// for a device thread, must not call register_collector or let go of a Registration.
using Collector = std::function<void(MetricSet&)>;

/// A collector that is asked until this is destroyed. Destruction waits for a call that is under way.
class Registration {
 public:
  Registration() = default;
  Registration(Registration&& other) noexcept : number_(std::exchange(other.number_, 0)) {}
  Registration& operator=(Registration&& other) noexcept;
  ~Registration();

 private:
  friend Registration register_collector(Collector collector);
  explicit Registration(std::uint64_t number) noexcept : number_(number) {}

  std::uint64_t number_ = 0;  // 0: none
};

[[nodiscard]] Registration register_collector(Collector collector);

/// The statistics of all device threads that are open, and what the collectors add. A collector that throws is left
/// out, and counted.
[[nodiscard]] MetricSet collect();

/// The same in Prometheus' text format.
[[nodiscard]] std::string text();

}  // namespace cox::metrics
