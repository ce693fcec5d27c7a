#pragma once

#include <coxswain/device_handle/base/unique_function.hpp>
#include <coxswain/device_handle/queue/spin_wait.hpp>
#include <coxswain/device_handle/service/thread_context.hpp>
#include <coxswain/runtime/async/blocked_wait.hpp>
#include <coxswain/runtime/async/completion_thread.hpp>
#include <coxswain/runtime/async/device_event.hpp>
#include <coxswain/runtime/error/queued_operation.hpp>
#include <coxswain/runtime/error/taken_error.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <type_traits>
#include <utility>

namespace cox::detail {

struct Nothing {};

/// The shared state of a Promise and its Future. It is completed once, and its result is taken once.
///
///     pending --complete--------------------------------> ready
///        `--settle_at--> armed --the waiter settles----->'
///
/// Armed: the result is available as soon as the device has reached a device event. A thread that waits for the future
/// waits for the event itself and then makes the result, so that no other thread has to be woken. If there is a
/// continuation, the helper thread of the device event makes the result for it. If an armed state is dropped, the
/// device event keeps the function that makes the result, and all that this function holds, until it is reached. An
/// error that is not taken returns to the stream that it came from (see TakenError).
template <class T>
class FutureState : public std::enable_shared_from_this<FutureState<T>> {
 public:
  using Value = std::conditional_t<std::is_void_v<T>, Nothing, T>;
  /// Makes the result; an exception from it is the error of the future.
  using Settle = UniqueFunction<Value()>;

  explicit FutureState(std::shared_ptr<CompletionThread> helper) noexcept
      : queued_(helper != nullptr ? helper->streams() : nullptr), helper_(std::move(helper)) {}
  FutureState(const FutureState&) = delete;
  FutureState& operator=(const FutureState&) = delete;
  ~FutureState() {
    if (!settle_) return;
    error_ = {};  // returned to its stream now: the device event may be reached much later
    std::shared_ptr<Settle> kept;
    try {
      kept = std::make_shared<Settle>(std::move(settle_));
      device_event_->notify([kept] {});
    } catch (...) {  // no memory to register it: wait on this thread
      device_event_->wait();
    }
  }

  /// Sets the result and runs the continuation, if there is one, on the calling thread with no lock held.
  void complete(TakenError error, std::optional<Value> value) {
    queued_.begin();
    finish(std::move(error), std::move(value));
  }

  /// Called instead of complete(). `earlier`, if set, becomes the error once `settle` has been called, unless `settle`
  /// throws another one; a state that is dropped returns it at once. Throws std::bad_alloc only if there is a
  /// continuation; the continuation then runs only when a thread waits for the result or polls it.
  void settle_at(std::shared_ptr<DeviceEvent> device_event, Settle settle, TakenError earlier = {}) {
    queued_.begin();
    bool awaited = false;
    {
      const std::lock_guard lock(mutex_);
      device_event_ = std::move(device_event);
      settle_ = std::move(settle);
      error_ = std::move(earlier);
      awaited = static_cast<bool>(continuation_);
      // Release pairs with the acquire in ready() and spin_until_armed().
      stage_.store(Stage::Armed, std::memory_order_release);
      changed_.notify_all();
    }
    if (awaited) settle_when_reached();
  }

  [[nodiscard]] bool ready() {
    if (stage_.load(std::memory_order_acquire) == Stage::Armed && device_event_->reached() && settle()) return true;
    const std::lock_guard lock(mutex_);
    return is(Stage::Ready);
  }
  /// Blocks until the state is complete. Throws CallError WouldDeadlock.
  void wait() {
    if (HeldNode::any_held() && ready()) return;  // not a wait, so no edge in the wait graph
    const QueuedOperation::Wait waiting(queued_);
    const std::optional<BlockedWait> blocked = note_blocked();
    if (!spin_until_armed()) {
      std::unique_lock lock(mutex_);
      static_cast<void>(wait_while_pending(lock, std::chrono::steady_clock::time_point::max()));
      if (is(Stage::Ready)) return;
    }
    static_cast<void>(wait_for_device_event(std::chrono::steady_clock::time_point::max()));
    if (settle()) return;
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return is(Stage::Ready); });
  }
  /// Blocks until the state is complete or until `deadline`; returns whether it is complete. Throws what wait() throws.
  [[nodiscard]] bool wait_until(std::chrono::steady_clock::time_point deadline) {
    if (HeldNode::any_held() && ready()) return true;
    const QueuedOperation::Wait waiting(queued_);
    const std::optional<BlockedWait> blocked = note_blocked();
    {
      std::unique_lock lock(mutex_);
      if (!wait_while_pending(lock, deadline)) return false;
      if (is(Stage::Ready)) return true;
    }
    if (!wait_for_device_event(deadline)) return false;
    if (settle()) return true;
    std::unique_lock lock(mutex_);
    const auto is_ready = [this] { return is(Stage::Ready); };
    if (deadline != std::chrono::steady_clock::time_point::max()) return changed_.wait_until(lock, deadline, is_ready);
    changed_.wait(lock, is_ready);
    return true;
  }
  /// Calls `continuation` once, when the state is complete: at once on the calling thread, or later on the thread that
  /// completes it. `continuation` must not throw. Throws std::bad_alloc.
  void when_ready(UniqueFunction<void()> continuation) {
    std::unique_lock lock(mutex_);
    const Stage found = stage_.load(std::memory_order_relaxed);
    if (found == Stage::Ready) {
      lock.unlock();
      return continuation();
    }
    continuation_ = std::move(continuation);
    lock.unlock();
    if (found == Stage::Armed) settle_when_reached();
  }

  // Only when the state is complete, and only by the owner that takes the result.
  [[nodiscard]] std::exception_ptr take_error() noexcept {
    if (error_.receipt != nullptr) std::exchange(error_.receipt, nullptr)->delivered();
    return std::exchange(error_.error, nullptr);
  }
  [[nodiscard]] Value take_value() {
    Value value = std::move(*value_);
    value_.reset();
    return value;
  }
  [[nodiscard]] QueuedOperation& queued() noexcept { return queued_; }
  [[nodiscard]] const std::shared_ptr<CompletionThread>& helper() const noexcept { return helper_; }

 private:
  enum class Stage : std::uint8_t { Pending, Armed, Ready };
  static constexpr std::chrono::microseconds spin_limit{50};
  static constexpr std::chrono::microseconds answer_interval{50};

  [[nodiscard]] bool is(Stage stage) const noexcept { return stage_.load(std::memory_order_relaxed) == stage; }

  [[nodiscard]] std::optional<BlockedWait> note_blocked() const noexcept {
    if (helper_ == nullptr) return std::nullopt;
    return std::optional<BlockedWait>(std::in_place, helper_->device());
  }

  void finish(TakenError error, std::optional<Value> value) {
    UniqueFunction<void()> continuation;
    {
      const std::lock_guard lock(mutex_);
      error_ = std::move(error);
      value_ = std::move(value);
      stage_.store(Stage::Ready, std::memory_order_release);  // pairs with the acquire in spin_until_armed()
      continuation = std::move(continuation_);
      // With the lock held: the waiter may destroy this state as soon as it sees that the state is ready.
      changed_.notify_all();
    }
    if (continuation) continuation();
  }

  // A device thread that waits inside exclusive() may wait for something that needs that thread itself: calls that
  // other threads have posted to its services. Returns the calling device thread if its services receive posts, else
  // null.
  static ThreadContext* thread_with_posts() noexcept {
    ThreadContext* const thread = ThreadContext::current();
    return thread != nullptr && thread->has_posts() ? thread : nullptr;
  }

  // Called with the lock held. Returns whether the state is no longer Pending.
  bool wait_while_pending(std::unique_lock<std::mutex>& lock, std::chrono::steady_clock::time_point deadline) {
    const auto moved_on = [this] { return !is(Stage::Pending); };
    if (ThreadContext* const thread = thread_with_posts()) [[unlikely]] {
      for (auto now = std::chrono::steady_clock::now(); now < deadline; now = std::chrono::steady_clock::now()) {
        if (changed_.wait_until(lock, std::min(deadline, now + answer_interval), moved_on)) return true;
        lock.unlock();
        thread->dispatch_posts();
        lock.lock();
      }
      return moved_on();
    }
    if (deadline != std::chrono::steady_clock::time_point::max()) return changed_.wait_until(lock, deadline, moved_on);
    changed_.wait(lock, moved_on);
    return true;
  }

  // Called without the lock. The device may reach the event only after this thread has handled its posts.
  bool wait_for_device_event(std::chrono::steady_clock::time_point deadline) {
    if (ThreadContext* const thread = thread_with_posts()) [[unlikely]] {
      for (auto now = std::chrono::steady_clock::now(); now < deadline; now = std::chrono::steady_clock::now()) {
        thread->dispatch_posts();
        if (device_event_->wait_until(std::min(deadline, now + answer_interval))) return true;
      }
      return device_event_->reached();
    }
    if (deadline != std::chrono::steady_clock::time_point::max()) return device_event_->wait_until(deadline);
    device_event_->wait();
    return true;
  }

  // Called without the lock: if the device is closed, notify calls the function at once. A waiting thread may settle
  // the state first; the function then does nothing.
  void settle_when_reached() {
    device_event_->notify([self = this->shared_from_this()] { static_cast<void>(self->settle()); });
  }

  // Spins for a short time before the caller blocks, because the result may be about to arrive. Returns whether the
  // state is Armed.
  bool spin_until_armed() const noexcept {
    SpinWait spin(spin_limit);
    for (;;) {
      // Acquire pairs with the release in settle_at() and finish().
      const Stage found = stage_.load(std::memory_order_acquire);
      if (found != Stage::Pending) return found == Stage::Armed;
      if (!spin.spin_once()) return false;
    }
  }

  // Called when the device event is reached. The first caller makes the result and returns true. Other callers return
  // false; the state is ready when the first caller is done.
  bool settle() {
    Settle settle;
    TakenError earlier;
    {
      const std::lock_guard lock(mutex_);
      settle = std::exchange(settle_, {});
      if (settle) earlier = std::exchange(error_, {});
    }
    if (!settle) return false;
    const auto self = this->shared_from_this();
    try {
      std::optional<Value> value = settle();
      if (earlier) value.reset();
      finish(std::move(earlier), std::move(value));
    } catch (...) {
      finish(current_error(), std::nullopt);
    }
    return true;
  }

  QueuedOperation queued_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<Stage> stage_{Stage::Pending};   // written with mutex_ held
  std::shared_ptr<DeviceEvent> device_event_;  // set once, before the stage is Armed
  Settle settle_;                              // guarded by mutex_, as all below
  TakenError error_;
  std::optional<Value> value_;
  UniqueFunction<void()> continuation_;
  std::shared_ptr<CompletionThread> helper_;
};

}  // namespace cox::detail
