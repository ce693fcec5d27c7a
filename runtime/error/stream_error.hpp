#pragma once

#include <coxswain/runtime/base/location.hpp>
#include <coxswain/runtime/error/log.hpp>

#include <cstdint>
#include <exception>
#include <functional>

namespace cox {

/// Queued work has failed. The stream keeps it for the next blocking call (L12); this tells at once.
struct StreamError {
  Location location;
  std::exception_ptr error;
};

/// Called for every failure of queued work, on the thread that found it: a device thread, or one that runs streams.
/// Must not throw and not block, and must not call the device. Replaces the former one; an empty function removes it.
/// Any thread.
void set_stream_error_callback(std::function<void(const StreamError&)> callback);

/// Failures of queued work in the process so far. Any thread.
[[nodiscard]] std::uint64_t stream_error_count() noexcept;

/// Counts the failure, logs it at level warn of that subsystem, and hands it to the callback. For servers.
void report_stream_error(LogSubsystem subsystem, const StreamError& error) noexcept;

}  // namespace cox
