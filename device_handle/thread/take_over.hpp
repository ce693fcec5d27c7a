#pragma once

#include <coxswain/device_handle/observe/running_task.hpp>
#include <coxswain/device_handle/queue/platform.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>

namespace cox {

/// Decides which thread may use the consumer half of a mailbox: the device thread, until a join takes the mailbox over
/// because the device thread is stuck in a task and may never return. If the device thread does return, it does not
/// touch the mailbox any more.
class TakeOver {
 public:
  // ---- the device thread

  /// Whether the mailbox was taken over from this thread. Check it after each task, through leave_task().
  [[nodiscard]] bool taken() const noexcept { return custody_.load(std::memory_order_relaxed) == Custody::Taken; }
  /// The thread has left a task. Returns whether it still owns the mailbox.
  bool leave_task() noexcept {
    SystemPlatform::light_barrier();  // pairs with take(): we see the request or it sees us outside a task
    return custody_.load(std::memory_order_acquire) == Custody::Kept || keep();
  }
  /// Whether tasks that have not started must be discarded.
  [[nodiscard]] bool discarding() const noexcept { return discarding_.load(std::memory_order_relaxed); }

  // ---- any thread

  /// Whether the mailbox was taken over.
  [[nodiscard]] bool abandoned() const noexcept { return custody_.load(std::memory_order_acquire) == Custody::Taken; }

  // ---- the thread that joins

  /// The deadline has passed: from now on, tasks that have not started are discarded.
  void discard_rest(const RunningTask& running) noexcept;
  /// Takes over the mailbox if, since discard_rest(), the thread has been in one task, or in the destruction of one,
  /// for a second. Returns whether it did.
  [[nodiscard]] bool take_if_stuck(const RunningTask& running) noexcept;

 private:
  enum class Custody : std::uint8_t { Kept, Requested, Taken };

  bool keep() noexcept;
  bool take(const RunningTask& running) noexcept;

  std::atomic<Custody> custody_{Custody::Kept};
  std::atomic<bool> discarding_{false};
  std::uint64_t progress_ = 0;  // the join's: the last serial of the running task, and the time of its last change
  std::chrono::steady_clock::time_point stuck_since_{};
};

}  // namespace cox
