#pragma once

#include <coxswain/runtime/base/location.hpp>
#include <coxswain/runtime/error/log.hpp>

#include <cstdint>
#include <exception>
#include <functional>

namespace cox {

/// A failure of queued work. The stream keeps the failure for its next blocking call (L12); the callback below reports
/// it immediately.
struct StreamError {
  Location location;
  std::exception_ptr error;
};

/// Sets the callback for failures of queued work. It is called for each failure, on the thread that detected it: a
/// device thread, or a thread that runs stream work. It must not throw, must not block and must not call the device.
/// Replaces the previous callback; an empty function removes it. Any thread.
void set_stream_error_callback(std::function<void(const StreamError&)> callback);

/// The number of failures of queued work in the process so far. Any thread.
[[nodiscard]] std::uint64_t stream_error_count() noexcept;

/// Counts the failure, logs it at level warn of the subsystem, and passes it to the callback. For servers.
void report_stream_error(LogSubsystem subsystem, const StreamError& error) noexcept;

}  // namespace cox
