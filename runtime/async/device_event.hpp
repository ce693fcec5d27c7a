#pragma once

#include <coxswain/device_handle/base/unique_function.hpp>

#include <chrono>

namespace cox {

/// A point in a device's work, which whoever wants to know of waits for itself: a recorded event, to CUDA. Any thread.
class DeviceEvent {
 public:
  DeviceEvent() = default;
  DeviceEvent(const DeviceEvent&) = delete;
  DeviceEvent& operator=(const DeviceEvent&) = delete;
  virtual ~DeviceEvent() = default;

  /// Whether the device has come to it, or never will since it has failed. Does not block.
  [[nodiscard]] virtual bool reached() noexcept = 0;
  /// Blocks until then.
  virtual void wait() noexcept = 0;
  /// Blocks until then, or until `deadline`; returns whether it is reached.
  [[nodiscard]] virtual bool wait_until(std::chrono::steady_clock::time_point deadline) noexcept = 0;
  /// Calls `function` when it is reached, on a helper thread of the device, where it must not block; destroys it after
  /// that. Does not block. Throws std::bad_alloc.
  virtual void notify(UniqueFunction<void()> function) = 0;
};

}  // namespace cox
