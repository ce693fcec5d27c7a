#pragma once

#include <coxswain/runtime/completion_thread.hpp>
#include <coxswain/runtime/detail/queued_operation.hpp>
#include <coxswain/runtime/unique_function.hpp>

#include <chrono>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <type_traits>
#include <utility>

namespace cox::detail {

struct Nothing {};

/// What a Promise and its Future share. Completed once; taken once.
template <class T>
class FutureState {
 public:
  using Value = std::conditional_t<std::is_void_v<T>, Nothing, T>;

  explicit FutureState(std::shared_ptr<CompletionThread> helper) noexcept : helper_(std::move(helper)) {}

  /// Runs the continuation, if there is one, on this thread, without a lock held.
  void complete(std::exception_ptr error, std::optional<Value> value) {
    queued_.begin();
    UniqueFunction<void()> continuation;
    {
      const std::lock_guard lock(mutex_);
      error_ = std::move(error);
      value_ = std::move(value);
      ready_ = true;
      continuation = std::move(continuation_);
      // Under the lock: the waiter may destroy this state as soon as it sees ready_.
      changed_.notify_all();
    }
    if (continuation) continuation();
  }

  [[nodiscard]] bool ready() const {
    const std::lock_guard lock(mutex_);
    return ready_;
  }
  /// Throws CallError WouldDeadlock.
  void wait() const {
    const QueuedOperation::Wait waiting(queued_);
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return ready_; });
  }
  /// Until `deadline`; returns whether it is complete. Throws as wait().
  [[nodiscard]] bool wait_until(std::chrono::steady_clock::time_point deadline) const {
    const QueuedOperation::Wait waiting(queued_);
    std::unique_lock lock(mutex_);
    return changed_.wait_until(lock, deadline, [this] { return ready_; });
  }
  /// Calls `continuation` once, when complete: at once on this thread, or later on the completing one. Must not throw.
  void when_ready(UniqueFunction<void()> continuation) {
    {
      const std::lock_guard lock(mutex_);
      if (!ready_) {
        continuation_ = std::move(continuation);
        return;
      }
    }
    continuation();
  }

  // After ready() only; by the one who takes the result.
  [[nodiscard]] std::exception_ptr take_error() noexcept { return std::exchange(error_, nullptr); }
  [[nodiscard]] Value take_value() {
    Value value = std::move(*value_);
    value_.reset();
    return value;
  }
  [[nodiscard]] QueuedOperation& queued() noexcept { return queued_; }
  [[nodiscard]] const std::shared_ptr<CompletionThread>& helper() const noexcept { return helper_; }

 private:
  mutable QueuedOperation queued_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool ready_ = false;
  std::exception_ptr error_;
  std::optional<Value> value_;
  UniqueFunction<void()> continuation_;
  std::shared_ptr<CompletionThread> helper_;
};

}  // namespace cox::detail
