#pragma once

#include <chrono>
#include <optional>
#include <source_location>
#include <stop_token>

namespace cox {

/// Options of one call. Passed to the second overload of each call of a DeviceHandle.
struct CallOptions {
  /// The task must have started by this time. Otherwise it is destroyed unrun: a blocking or asynchronous caller gets
  /// CallError Expired (a blocking one at the deadline), a fire-and-forget task is only counted.
  std::optional<std::chrono::steady_clock::time_point> deadline{};
  /// If it is triggered before the task starts, the task is destroyed unrun and the waiting caller gets CallError
  /// Cancelled.
  std::stop_token stop{};
  /// Shown by the stall detector and in error messages. Must have static storage duration (a string literal).
  const char* label = nullptr;
  /// The source location of the call. Filled in where the options are written as CallOptions{...}.
  std::source_location site = std::source_location::current();
};

}  // namespace cox
