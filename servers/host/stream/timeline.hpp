#pragma once

#include <coxswain/runtime/base/small_vector.hpp>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>

namespace cox::detail {

/// Counts the pieces of work that a stream has finished: piece n is done when the count has reached n. What a timeline
/// semaphore is on a GPU. Nothing here allocates or throws. Any thread, unless said otherwise.
class Timeline {
 public:
  /// An object that is notified when a value is reached. Stays where it is until then.
  class Waiter {
   public:
    Waiter() = default;
    Waiter(const Waiter&) = delete;
    Waiter& operator=(const Waiter&) = delete;
    /// Called once, in the advance that reaches the value. The waiter may wait again, or be destroyed, from then on.
    virtual void reached() noexcept = 0;

   protected:
    ~Waiter() = default;

   private:
    friend class Timeline;
    std::uint64_t value_ = 0;
    Waiter* next_ = nullptr;
  };

  /// Pieces finished so far.
  [[nodiscard]] std::uint64_t count() const noexcept {
    // Acquire pairs with the release in advance: what the finished work wrote is visible.
    return count_.load(std::memory_order_acquire);
  }
  [[nodiscard]] bool reached(std::uint64_t value) const noexcept { return count() >= value; }
  /// One more piece is done. Notifies those that waited for it, on this thread.
  void advance() noexcept { raise(1, 0); }
  /// At least so many pieces are done; nothing happens if there were as many already. Notifies as advance().
  void advance_to(std::uint64_t value) noexcept { raise(0, value); }
  /// Returns true if `waiter` will be notified; false if `value` is reached already.
  [[nodiscard]] bool notify_at(std::uint64_t value, Waiter& waiter) noexcept;
  /// Blocks until `value` is reached.
  void wait(std::uint64_t value);
  /// As that, until `deadline` at the latest. Returns whether it is reached.
  bool wait_until(std::uint64_t value, std::chrono::steady_clock::time_point deadline);

 private:
  void raise(std::uint64_t more, std::uint64_t at_least) noexcept;

  std::atomic<std::uint64_t> count_{0};
  std::mutex mutex_;
  std::condition_variable changed_;
  Waiter* waiters_ = nullptr;  // linked, in no order: streams, each at most once; guarded by mutex_
};

/// The completion of one piece of a stream's work.
struct HostEvent {
  std::shared_ptr<Timeline> timeline;
  std::uint64_t value = 0;

  [[nodiscard]] bool reached() const noexcept { return timeline == nullptr || timeline->reached(value); }
};

using HostEvents = SmallVector<HostEvent, 4>;

}  // namespace cox::detail
