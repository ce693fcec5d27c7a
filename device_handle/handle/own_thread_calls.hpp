#pragma once

#include <coxswain/device_handle/base/call_error.hpp>
#include <coxswain/device_handle/base/call_options.hpp>
#include <coxswain/device_handle/base/stream_id.hpp>
#include <coxswain/device_handle/base/task_error.hpp>
#include <coxswain/device_handle/queue/task.hpp>
#include <coxswain/device_handle/service/call.hpp>
#include <coxswain/device_handle/service/service_cell.hpp>

#include <exception>
#include <source_location>
#include <type_traits>
#include <utility>

namespace cox::detail {

/// Calls of a device thread to a service of its own: blocking calls, and all calls inside `exclusive`, run at once
/// instead of through the queue. Refers to the device, which outlives it: what is deferred runs before the outermost
/// inline task returns.
template <class S, class Device>
class OwnThreadCalls {
 public:
  OwnThreadCalls(Device& device, ServiceCell<S>& cell) noexcept : device_(device), cell_(cell) {}

  /// Whether a fire-and-forget call runs inline. Throws if the service has been destroyed.
  [[nodiscard, gnu::noinline]] bool runs_inside(const std::source_location& site) const {
    if (!device_.exclusive()) return false;
    if (device_.inline_calls().in_task()) return true;
    if (cell_.borrowed()) return false;  // by the task that called exclusive
    at_site(site, [&] { throw_if_closed(); });
    return true;
  }

  /// Runs the task of such a call.
  void run_inside_exclusive(typename Device::Boxed task) const {
    if (device_.inline_calls().in_task()) {
      device_.inline_calls().defer(
          [self = *this, task = std::move(task)]() mutable noexcept { self.post_again(task); });
    } else {
      const typename Device::CurrentScope current(device_);
      device_.inline_calls().run([&] { device_.count_inline_task(task()); });
    }
  }

  /// Runs the body of a blocking call, ahead of the queue. Returns its value, or throws what it threw. `uses_service`:
  /// the body uses the service.
  template <class Body, class... Options>
  auto call(Body& body, bool uses_service, const Options&... options) const -> std::invoke_result_t<Body&> {
    (throw_if_refused(options), ...);
    if (uses_service) {
      if (cell_.borrowed()) throw_would_deadlock(device_.device(), "a task of the same service is on the stack");
      throw_if_closed();
    }
    CallResult<std::invoke_result_t<Body&>> result;
    device_.inline_calls().run([&] { result.run(body); });
    device_.count_inline_task(result.failed() ? Outcome::Failed : Outcome::Completed);
    return std::move(result).get();
  }

 private:
  // The call has already returned, so an error is reported like the errors of tasks.
  void post_again(typename Device::Boxed& task) const noexcept {
    try {
      if (runs_inside({})) {
        run_inside_exclusive(std::move(task));
      } else {
        device_.post(moving(task));
      }
    } catch (...) {
      report_task_error({device_.device(), StreamId::current(), std::current_exception()});
    }
  }

  // Refuses a call made by the destructor of a service that is destroyed after S.
  void throw_if_closed() const {
    if (!cell_.open()) throw_service_closed(device_.device());
  }

  void throw_if_refused(const CallOptions& options) const {
    if (const auto kind = find_refusal(options)) {
      device_.count_inline_task(outcome_of(*kind));
      std::rethrow_exception(call_error(*kind, device_.device(), &options));
    }
  }

  Device& device_;
  ServiceCell<S>& cell_;
};

}  // namespace cox::detail
