#pragma once

#include <coxswain/device_handle/base/device_id.hpp>
#include <coxswain/device_handle/base/stream_id.hpp>

#include <exception>
#include <functional>
#include <string>

namespace cox {

/// An exception of a fire-and-forget task whose service has no `on_task_error` (law L5).
struct TaskError {
  DeviceId device;
  StreamId stream;
  std::exception_ptr error;
};

/// The callback runs on the device thread for every TaskError; it must not throw or block. Replaces the previous
/// callback. An empty function restores the default, which writes one line to the standard error stream, so that no
/// error is lost.
void set_task_error_callback(std::function<void(const TaskError&)> callback);

/// Sets the callback if the default is in force; returns whether it was set.
bool offer_task_error_callback(std::function<void(const TaskError&)> callback);

/// Passes `error` to the callback. For implementers of services.
void report_task_error(const TaskError& error) noexcept;

/// One line of text about `error`: the what() of a std::exception, else "unknown exception".
[[nodiscard]] std::string describe(const std::exception_ptr& error);

/// Like describe(), but uses brief() for an Error: the text that is included in the error that it causes.
[[nodiscard]] std::string describe_cause(const std::exception_ptr& cause);

/// The error and its causes, outermost first, each on a line of its own. A line does not repeat the text of the next
/// one; it has the caller's source line if that is known. If there are several failures (ServerError::errors()), the
/// chain of the first one is written.
[[nodiscard]] std::string error_chain(const std::exception_ptr& error);

}  // namespace cox
