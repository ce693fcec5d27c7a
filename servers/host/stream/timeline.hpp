#pragma once

#include <coxswain/runtime/base/small_vector.hpp>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>

namespace cox::detail {

/// Counts the completed pieces of work of a stream: piece n is complete when the count has reached n. Equivalent to a
/// timeline semaphore on a GPU. Nothing here allocates or throws. Any thread, unless said otherwise.
class Timeline {
 public:
  /// An object that is notified when a value is reached. Must not be moved or destroyed before that.
  class Waiter {
   public:
    Waiter() = default;
    Waiter(const Waiter&) = delete;
    Waiter& operator=(const Waiter&) = delete;
    /// Called once, on the thread whose advance reaches the value. The waiter may wait again, or be destroyed, from
    /// then on.
    virtual void reached() noexcept = 0;

   protected:
    ~Waiter() = default;

   private:
    friend class Timeline;
    std::uint64_t value_ = 0;
    Waiter* next_ = nullptr;
  };

  /// Number of completed pieces.
  [[nodiscard]] std::uint64_t count() const noexcept {
    // Acquire pairs with the release in raise: what the completed work wrote is visible.
    return count_.load(std::memory_order_acquire);
  }
  [[nodiscard]] bool reached(std::uint64_t value) const noexcept { return count() >= value; }
  /// One more piece is complete. Notifies the waiters whose value is reached, on this thread.
  void advance() noexcept { raise(1, 0); }
  /// At least `value` pieces are complete. Does nothing if the count is not lower already. Notifies like advance().
  void advance_to(std::uint64_t value) noexcept { raise(0, value); }
  /// Returns true if `waiter` will be notified; false if `value` is reached already.
  [[nodiscard]] bool notify_at(std::uint64_t value, Waiter& waiter) noexcept;
  /// Blocks until `value` is reached.
  void wait(std::uint64_t value);
  /// Blocks until `value` is reached, at most until `deadline`. Returns whether it is reached.
  bool wait_until(std::uint64_t value, std::chrono::steady_clock::time_point deadline);

 private:
  void raise(std::uint64_t more, std::uint64_t at_least) noexcept;

  std::atomic<std::uint64_t> count_{0};
  std::mutex mutex_;
  std::condition_variable changed_;
  Waiter* waiters_ = nullptr;  // linked, in no order, each at most once; guarded by mutex_
};

/// The completion of one piece of a stream's work.
struct HostEvent {
  std::shared_ptr<Timeline> timeline;
  std::uint64_t value = 0;

  [[nodiscard]] bool reached() const noexcept { return timeline == nullptr || timeline->reached(value); }
};

using HostEvents = SmallVector<HostEvent, 4>;

}  // namespace cox::detail
