#pragma once

#include <coxswain/device_handle/base/device_id.hpp>
#include <coxswain/device_handle/base/stage.hpp>

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>

namespace cox {

/// A task that has held a device thread longer than DeviceThreadOptions::stall_threshold.
struct StallReport {
  DeviceId device;
  Stage stage;
  std::string task;  ///< The task's label and call site if the call gave them, else the type of its closure.
  std::chrono::milliseconds held;
  std::size_t waiting;  ///< Number of tasks queued after it.

  /// One line.
  [[nodiscard]] std::string to_string() const;
};

/// The callback is called once for each stalled task, on a thread of the library; it must not throw. It may shut
/// devices down. Replaces the previous callback. An empty function restores the default, which writes to_string() to
/// the standard error stream.
void set_stall_callback(std::function<void(const StallReport&)> callback);

/// Sets the callback if the default is in force; returns whether it was set.
bool offer_stall_callback(std::function<void(const StallReport&)> callback);

}  // namespace cox
