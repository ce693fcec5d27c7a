#pragma once

#include <coxswain/device_handle/base/queue_policy.hpp>
#include <coxswain/device_handle/queue/task.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace cox {

/// What a push does when the queue is at capacity under QueuePolicy::Block.
enum class WhenFull : std::uint8_t {
  Block,             ///< Waits for room.
  Fail,              ///< Returns Full.
  Overcommit,        ///< Enqueues beyond the capacity: a full queue never blocks a device thread.
  OvercommitAlways,  ///< Enqueues beyond the capacity, also under QueuePolicy::Fail.
};

/// The back-pressure of a mailbox. A credit allows one closure to be queued: `granted_` counts closures that may be or
/// have been queued, `finished_` those of them that have been run.
///
/// A lane acquires credits in chunks, so that the shared words are touched once per chunk. If its thread stops pushing,
/// it keeps the rest of its chunk. To limit this to a quarter of the capacity, chunks are granted only if there are few
/// enough lanes when the call begins; with more lanes, credits are granted one at a time.
///
/// Any thread. `closed()` says whether the mailbox refuses pushes. It is a seq_cst load, and wake_waiters() is called
/// after it has become true: a waiter that has not seen it has taken its ticket before that, so it does not sleep.
template <class Platform>
class Credits {
  template <class T>
  using atomic = typename Platform::template atomic<T>;

 public:
  /// `capacity`: the largest number of queued closures under the policies Block and Fail.
  Credits(QueuePolicy policy, std::size_t capacity) noexcept
      : policy_(policy),
        capacity_(capacity),
        chunk_(static_cast<std::uint32_t>(std::clamp<std::size_t>(capacity / 256, 1, 32))) {}

  /// Whether the number of queued closures is limited; if it is not, credits need not be returned.
  [[nodiscard]] bool limited() const noexcept { return policy_ != QueuePolicy::Grow; }
  /// The number of credits to return at a time.
  [[nodiscard]] std::uint32_t chunk() const noexcept { return chunk_; }

  /// Grants credits to one of `lanes` lanes. Waits at capacity, under the policy Block, if `when_full` says so. Returns
  /// 0 if the queue stays at capacity or the mailbox is closed.
  template <class Closed>
  [[nodiscard]] std::uint32_t acquire(WhenFull when_full, std::uint64_t lanes, Closed&& closed) {
    if (!limited()) return std::numeric_limits<std::uint32_t>::max();
    for (;;) {
      const std::uint32_t ticket = room_.load(std::memory_order_seq_cst);
      if (closed()) return 0;
      std::uint64_t granted = granted_.load(std::memory_order_seq_cst);
      const std::uint64_t queued = outstanding(granted);
      const std::uint64_t free = queued < capacity_ ? capacity_ - queued : 0;
      if (free == 0 && when_full != WhenFull::OvercommitAlways &&
          (policy_ == QueuePolicy::Fail || when_full == WhenFull::Fail))
        return 0;
      if (free == 0 && when_full == WhenFull::Block) {
        waiters_.fetch_add(1, std::memory_order_seq_cst);  // pairs with wake_for_room(): it sees us or we see the room
        if (outstanding() >= capacity_) Platform::park(room_, ticket);
        waiters_.fetch_sub(1, std::memory_order_relaxed);
        continue;
      }
      const std::uint32_t wanted = lanes * chunk_ <= capacity_ / 4 ? chunk_ : 1;
      const auto count = free == 0 ? 1U : static_cast<std::uint32_t>(std::min<std::uint64_t>(free, wanted));
      if (granted_.compare_exchange_weak(granted, granted + count, std::memory_order_relaxed)) return count;
    }
  }

  /// Returns the credits of closures that have been run.
  void return_used(std::size_t count) noexcept {
    finished_.fetch_add(count, std::memory_order_seq_cst);
    wake_for_room();
  }
  /// Returns credits of a lane for closures that it has not queued.
  void return_unused(std::uint32_t count) noexcept {
    if (!limited() || count == 0) return;
    granted_.fetch_sub(count, std::memory_order_seq_cst);
    wake_for_room();
  }

  /// Blocks until there may be room, `closed()`, or `deadline` has passed.
  template <class Closed>
  void wait(std::chrono::steady_clock::time_point deadline, Closed&& closed) noexcept {
    const std::uint32_t ticket = room_.load(std::memory_order_seq_cst);
    waiters_.fetch_add(1, std::memory_order_seq_cst);  // as in acquire()
    if (outstanding() >= capacity_ && !closed()) Platform::park_until(room_, ticket, deadline);
    waiters_.fetch_sub(1, std::memory_order_relaxed);
  }
  /// Wakes all threads that wait for room: there is some, or the mailbox is closed.
  void wake_waiters() noexcept {
    room_.fetch_add(1, std::memory_order_seq_cst);
    Platform::wake_all(room_);
  }

 private:
  // Credits that lanes hold or queued closures have used. `granted` may be out of date, so that finished_ is larger
  // already; the result is 0 then.
  [[nodiscard]] std::uint64_t outstanding(std::uint64_t granted) const noexcept {
    const std::uint64_t finished = finished_.load(std::memory_order_seq_cst);
    return granted > finished ? granted - finished : 0;
  }
  [[nodiscard]] std::uint64_t outstanding() const noexcept {
    return outstanding(granted_.load(std::memory_order_seq_cst));
  }

  // Waiters sleep until half of the capacity is free: waking them for every slot would cost more than the work. seq_cst
  // here and where credits are returned: if two threads return credits, the later one sees what both have returned.
  void wake_for_room() noexcept {
    if (waiters_.load(std::memory_order_seq_cst) != 0 && outstanding() <= capacity_ / 2) wake_waiters();
  }

  const QueuePolicy policy_;
  const std::size_t capacity_;
  const std::uint32_t chunk_;
  alignas(cache_line) atomic<std::uint64_t> granted_{0};
  alignas(cache_line) atomic<std::uint64_t> finished_{0};
  atomic<std::uint32_t> waiters_{0};
  atomic<std::uint32_t> room_{0};  // changes when waiters are woken
};

}  // namespace cox
