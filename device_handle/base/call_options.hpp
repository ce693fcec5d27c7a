#pragma once

#include <chrono>
#include <optional>
#include <source_location>
#include <stop_token>

namespace cox {

/// What one call may ask for beyond the defaults; passed to the second overload of each call of a DeviceHandle.
struct CallOptions {
  /// The task must have started by then. Else it is destroyed unrun; a blocking or asynchronous caller gets CallError
  /// Expired (a blocking one at the deadline), fire and forget is only counted.
  std::optional<std::chrono::steady_clock::time_point> deadline{};
  /// Triggered before the task starts: the task is destroyed unrun and the waiting caller gets CallError Cancelled.
  std::stop_token stop{};
  /// Shown by the stall detector and in error messages. Must have static storage duration (a string literal).
  const char* label = nullptr;
  /// Where the call was made: filled in where the options are written as CallOptions{...}.
  std::source_location site = std::source_location::current();
};

}  // namespace cox
