#pragma once

#include <coxswain/device_handle/base/device_id.hpp>
#include <coxswain/device_handle/base/stream_id.hpp>

#include <exception>
#include <functional>
#include <string>

namespace cox {

/// What a fire-and-forget task threw and its service had no `on_task_error` for (law L5).
struct TaskError {
  DeviceId device;
  StreamId stream;
  std::exception_ptr error;
};

/// Called on the device thread for every such error; must not throw and not block. Replaces the former one; an empty
/// function restores the default, which writes one line to the standard error stream, so that no error is lost.
void set_task_error_callback(std::function<void(const TaskError&)> callback);

/// Sets the callback if the default is in force; returns whether it did.
bool offer_task_error_callback(std::function<void(const TaskError&)> callback);

/// Hands `error` to the callback. For implementers of services.
void report_task_error(const TaskError& error) noexcept;

/// One line on what `error` holds: the what() of a std::exception, else "unknown exception".
[[nodiscard]] std::string describe(const std::exception_ptr& error);

/// As describe(), but an Error's brief(): what the error that it causes says of it.
[[nodiscard]] std::string describe_cause(const std::exception_ptr& cause);

/// The error and its causes, one line for each, outermost first, each without the text of the next; with the caller's
/// line where it is known. Of several failures (ServerError::errors()) the first is written out.
[[nodiscard]] std::string error_chain(const std::exception_ptr& error);

}  // namespace cox
