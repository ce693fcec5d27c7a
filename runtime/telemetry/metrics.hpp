#pragma once

#include <coxswain/runtime/telemetry/metric_set.hpp>

#include <cstdint>
#include <functional>
#include <string>

/// Metrics of the process, read on request: nothing is counted for them that is not counted anyway. All functions: any
/// thread.
namespace cox::metrics {

/// Adds the values of one source to a set. Called on the thread that reads the metrics, one call at a time. It must not
/// wait for a device thread, call register_collector or destroy a Registration.
using Collector = std::function<void(MetricSet&)>;

/// Owns the registration of a collector. The destructor unregisters it and waits for a call that is in progress.
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

/// The statistics of all open device threads and the values that the collectors add. If a collector throws, its values
/// are left out and the failure is counted.
[[nodiscard]] MetricSet collect();

/// The result of collect() in the text format of Prometheus.
[[nodiscard]] std::string text();

}  // namespace cox::metrics
