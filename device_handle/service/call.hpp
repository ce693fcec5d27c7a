#pragma once

#include <coxswain/device_handle/base/call_error.hpp>
#include <coxswain/device_handle/base/call_options.hpp>
#include <coxswain/device_handle/base/device_id.hpp>
#include <coxswain/device_handle/observe/wait_graph.hpp>
#include <coxswain/device_handle/queue/task.hpp>
#include <coxswain/device_handle/service/completion.hpp>

#include <atomic>
#include <chrono>
#include <exception>
#include <memory>
#include <optional>
#include <source_location>
#include <type_traits>
#include <utility>

// The tasks that a mailbox carries when a client calls a device, by what happens to the closure's result:
//
//   PostedTask    submit: no caller waits; an exception goes to the service's error sink (posted_task.hpp)
//   BlockingTask  submit_blocking, exclusive: the caller waits on a BlockingResult on its own stack
//   AsyncTask     submit_async: a completion handler receives it (submit_async.hpp)
//   Guarded<T>    any of these with CallOptions
//
// The closures are called "bodies": objects that are called once on the device thread, without arguments.

namespace cox::detail {

/// The error of a call whose task did not run: a CallError, or std::bad_alloc if there is no memory for one.
[[nodiscard]] std::exception_ptr call_error(CallError::Kind kind, DeviceId device, const CallOptions* options) noexcept;

/// Returns the reason that keeps a task from starting, if any: its stop_token or its deadline.
[[nodiscard]] std::optional<CallError::Kind> find_refusal(const CallOptions& options) noexcept;

/// Refuses a call, with the reason why `device` cannot complete it.
[[noreturn]] void throw_would_deadlock(DeviceId device, const char* reason);
/// Refuses a call to `device` if waiting for it would close a cycle (L10).
inline void throw_if_cycle(const WaitScope& waiting, DeviceId device) {
  if (waiting.closes_cycle()) throw_would_deadlock(device, "its thread waits for the calling thread");
}
/// Refuses a call made by the destructor of a service that is destroyed after the called service.
[[noreturn]] void throw_service_closed(DeviceId device);

[[nodiscard]] constexpr Outcome outcome_of(CallError::Kind kind) noexcept {
  return kind == CallError::Kind::Expired ? Outcome::Expired : Outcome::Cancelled;
}

/// A task that checks its options before it starts.
template <class Device, Task T>
class Guarded {
 public:
  Guarded(CallOptions options, T&& task) : options_(std::move(options)), task_(std::move(task)) {}

  Outcome operator()() noexcept {
    if (const auto kind = find_refusal(options_)) {
      task_.discard(*kind);
      return outcome_of(*kind);
    }
    Device::name_running(options_.label, options_.site);
    return task_();
  }
  void discard(CallError::Kind reason) noexcept { task_.discard(reason); }
  /// Completes the task with `error`: it was not accepted.
  void refuse(std::exception_ptr error) noexcept { task_.refuse(std::move(error)); }

 private:
  CallOptions options_;
  T task_;
};

/// `task`; with options, a task that checks them before it starts.
template <class Device, Task T>
[[nodiscard]] T guarded(T task) {
  return task;
}
template <class Device, Task T>
[[nodiscard]] Guarded<Device, T> guarded(T task, const CallOptions& options) {
  return {options, std::move(task)};
}

/// The value that a body returned, or the exception that it threw.
template <class R>
class CallResult {
  using Value = std::conditional_t<std::is_reference_v<R>, std::add_pointer_t<R>, R>;

 public:
  template <class Body>
  void run(Body& body) noexcept {
    try {
      if constexpr (std::is_void_v<R>) {
        body();
      } else if constexpr (std::is_reference_v<R>) {
        value_.emplace(std::addressof(body()));
      } else {
        value_.emplace(body());
      }
    } catch (...) {
      error_ = std::current_exception();
    }
  }
  void fail(std::exception_ptr error) noexcept { error_ = std::move(error); }

  [[nodiscard]] bool failed() const noexcept { return error_ != nullptr; }
  [[nodiscard]] std::exception_ptr error() const noexcept { return error_; }
  /// The returned value. Only if the body returned a value and did not throw.
  [[nodiscard]] auto& value() noexcept
    requires(!std::is_void_v<R>)
  {
    if constexpr (std::is_reference_v<R>) {
      return **value_;
    } else {
      return *value_;
    }
  }

  R get() && {
    if (error_ != nullptr) std::rethrow_exception(std::exchange(error_, nullptr));
    if constexpr (std::is_reference_v<R>) {
      return static_cast<R>(**value_);
    } else if constexpr (!std::is_void_v<R>) {
      return std::move(*value_);
    }
  }

 private:
  struct Nothing {};
  std::optional<std::conditional_t<std::is_void_v<R>, Nothing, Value>> value_;
  std::exception_ptr error_;
};

/// The object that the caller of a blocking call waits on, on its own stack. It has a cache line of its own: the device
/// thread writes it, the waiting thread reads it, and no other data of either thread is in it.
template <class R>
class alignas(cache_line) BlockingResult {
 public:
  explicit BlockingResult(WaitScope& waiting) noexcept : waiting_(waiting.announced() ? &waiting : nullptr) {}
  BlockingResult(const BlockingResult&) = delete;
  BlockingResult& operator=(const BlockingResult&) = delete;

  /// Blocks; returns what the body returned or throws what it threw.
  R wait(std::chrono::nanoseconds spin) {
    completion_.wait(spin);
    return std::move(result_).get();
  }

  // ---- device thread
  [[nodiscard]] CallResult<R>& result() noexcept { return result_; }
  void complete() noexcept {
    if (waiting_ != nullptr) waiting_->end_wait();
    completion_.signal();  // after this the caller may destroy this object
  }

 private:
  Completion completion_;
  CallResult<R> result_;
  WaitScope* waiting_;  // null for a client thread, which holds nothing up
};

/// A call whose caller waits on a BlockingResult, so the body may borrow from the caller's stack. The body is destroyed
/// on the device thread before the caller wakes (L6).
template <class Body>
class BlockingTask {
  using R = std::invoke_result_t<Body&>;

 public:
  BlockingTask(Body&& body, BlockingResult<R>& blocking_result, DeviceId device)
      : body_(std::in_place, std::move(body)), blocking_result_(&blocking_result), device_(device) {}

  Outcome operator()() noexcept {
    CallResult<R>& result = blocking_result_->result();
    result.run(*body_);
    const Outcome outcome = result.failed() ? Outcome::Failed : Outcome::Completed;
    body_.reset();
    blocking_result_->complete();
    return outcome;
  }
  void discard(CallError::Kind reason) noexcept {
    body_.reset();
    blocking_result_->result().fail(call_error(reason, device_, nullptr));
    blocking_result_->complete();
  }

 private:
  std::optional<Body> body_;
  BlockingResult<R>* blocking_result_;
  DeviceId device_;
};

/// A call whose caller waits, but no longer than its options allow. The caller may stop waiting while the task is
/// queued, so both sides share this object. The side that first claims the body decides what happens to it.
template <class Device, class Body>
class GuardedCall {
  using R = std::invoke_result_t<Body&>;

 public:
  GuardedCall(CallOptions options, Body&& body, DeviceId device, WaitScope& waiting)
      : options_(std::move(options)), body_(std::in_place, std::move(body)), waiting_(waiting), device_(device) {}
  GuardedCall(const GuardedCall&) = delete;
  GuardedCall& operator=(const GuardedCall&) = delete;

  struct Ticket {
    std::shared_ptr<GuardedCall> call;
    Outcome operator()() const noexcept { return call->run(); }
    void discard(CallError::Kind reason) const noexcept { call->discard(reason); }
  };

  R wait() {
    {
      const std::stop_callback on_stop(options_.stop, [this] { completion_.interrupt(); });
      const bool answered =
          completion_.wait_until(options_.deadline, [this] { return options_.stop.stop_requested(); });
      if (!answered) abandon();
    }
    if (abandoned_) std::rethrow_exception(call_error(abandon_reason_, device_, &options_));
    return std::move(result_).get();
  }

 private:
  enum class Claim : std::uint8_t { Queued, Started, Abandoned };

  bool claim(Claim claim) noexcept {
    Claim expected = Claim::Queued;
    return claim_.compare_exchange_strong(expected, claim, std::memory_order_acq_rel);
  }

  // Called by the caller. Abandons the task if it has not started, else waits until it has completed.
  void abandon() noexcept {
    abandon_reason_ = find_refusal(options_).value_or(CallError::Kind::Expired);
    if (claim(Claim::Abandoned)) {
      abandoned_ = true;
      body_.reset();
    } else {
      completion_.wait({});
    }
  }

  Outcome run() noexcept {
    const auto kind = find_refusal(options_);
    if (!claim(Claim::Started)) return outcome_of(abandon_reason_);
    Outcome outcome = Outcome::Completed;
    if (kind) {
      outcome = outcome_of(*kind);
      result_.fail(call_error(*kind, device_, &options_));
    } else {
      Device::name_running(options_.label, options_.site);
      result_.run(*body_);
      if (result_.failed()) outcome = Outcome::Failed;
    }
    body_.reset();
    waiting_.end_wait();
    completion_.signal();
    return outcome;
  }
  void discard(CallError::Kind reason) noexcept {
    if (!claim(Claim::Started)) return;
    body_.reset();
    result_.fail(call_error(reason, device_, &options_));
    waiting_.end_wait();
    completion_.signal();
  }

  CallOptions options_;
  std::optional<Body> body_;
  CallResult<R> result_;
  Completion completion_;
  std::atomic<Claim> claim_{Claim::Queued};
  WaitScope& waiting_;  // the caller's; used only while the caller waits, that is after Claim::Started
  DeviceId device_;
  // Written by the caller; read by the device thread only after it has seen Claim::Abandoned:
  CallError::Kind abandon_reason_ = CallError::Kind::Expired;
  bool abandoned_ = false;
};

/// Runs `body` on the thread of `device` and blocks until it has completed; returns its value or throws what it threw.
/// Not inlined, so it has its own stack frame: variables of the caller that the closure borrows are then not on cache
/// lines that this function writes.
template <class Device, class Body>
[[gnu::noinline]] auto wait_for(Device& device, Body&& body) -> std::invoke_result_t<Body&> {
  WaitScope waiting(device);
  throw_if_cycle(waiting, device.device());
  BlockingResult<std::invoke_result_t<Body&>> blocking_result(waiting);
  const bool woke = device.post(
      [&] { return BlockingTask<std::decay_t<Body>>(std::forward<Body>(body), blocking_result, device.device()); });
  // A caller that had to wake the device thread sleeps at once: by spinning it could keep that thread from running.
  return blocking_result.wait(woke ? std::chrono::nanoseconds::zero() : device.options().spin);
}
/// Waits no longer than `options` allow, unless the task has started.
template <class Device, class Body>
auto wait_for(Device& device, Body&& body, const CallOptions& options) -> std::invoke_result_t<Body&> {
  WaitScope waiting(device);
  throw_if_cycle(waiting, device.device());
  using Call = GuardedCall<Device, std::decay_t<Body>>;
  const auto call = std::make_shared<Call>(options, std::forward<Body>(body), device.device(), waiting);
  device.post([&] { return typename Call::Ticket{call}; }, options);
  return call->wait();
}

}  // namespace cox::detail
