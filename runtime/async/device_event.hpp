#pragma once

#include <coxswain/device_handle/base/unique_function.hpp>

#include <chrono>

namespace cox {

/// A point in a device's work that any thread can poll, or wait for without the help of another thread. Equivalent to a
/// recorded cudaEvent_t. Any thread.
class DeviceEvent {
 public:
  DeviceEvent() = default;
  DeviceEvent(const DeviceEvent&) = delete;
  DeviceEvent& operator=(const DeviceEvent&) = delete;
  virtual ~DeviceEvent() = default;

  /// Whether the device has reached the event, or never will because it has failed. Does not block.
  [[nodiscard]] virtual bool reached() noexcept = 0;
  /// Blocks until the event is reached.
  virtual void wait() noexcept = 0;
  /// Blocks until the event is reached or until `deadline`; returns whether it is reached.
  [[nodiscard]] virtual bool wait_until(std::chrono::steady_clock::time_point deadline) noexcept = 0;
  /// Calls `function` when the event is reached, on a helper thread of the device, and then destroys it. `function`
  /// must not block. notify itself does not block. Throws std::bad_alloc.
  virtual void notify(UniqueFunction<void()> function) = 0;
};

}  // namespace cox
