#pragma once

#include <coxswain/device_handle/observe/running_task.hpp>
#include <coxswain/device_handle/queue/platform.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>

namespace cox {

/// Who may use the consumer half of a mailbox: its device thread, until a join has taken it from that thread, which is
/// stuck in a task and may never come back. If it does, it touches nothing of the mailbox any more.
class TakeOver {
 public:
  // ---- the device thread

  /// Whether it was taken from this thread. To be asked after each task, by way of leave_task().
  [[nodiscard]] bool taken() const noexcept { return custody_.load(std::memory_order_relaxed) == Custody::Taken; }
  /// The thread has left a task. Returns whether the mailbox is still its own.
  bool leave_task() noexcept {
    SystemPlatform::light_barrier();  // pairs with take(): we see the request or it sees us outside a task
    return custody_.load(std::memory_order_acquire) == Custody::Kept || keep();
  }
  /// Whether tasks that have not started are to be discarded.
  [[nodiscard]] bool discarding() const noexcept { return discarding_.load(std::memory_order_relaxed); }

  // ---- any thread

  /// Whether it was taken.
  [[nodiscard]] bool abandoned() const noexcept { return custody_.load(std::memory_order_acquire) == Custody::Taken; }

  // ---- the thread that joins

  /// The time is up: tasks that have not started are discarded from now on.
  void discard_rest(const RunningTask& running) noexcept;
  /// Takes the mailbox if the thread has been in one task, or in the destruction of one, for a second since
  /// discard_rest(). Returns whether it did.
  [[nodiscard]] bool take_if_stuck(const RunningTask& running) noexcept;

 private:
  enum class Custody : std::uint8_t { Kept, Requested, Taken };

  bool keep() noexcept;
  bool take(const RunningTask& running) noexcept;

  std::atomic<Custody> custody_{Custody::Kept};
  std::atomic<bool> discarding_{false};
  std::uint64_t progress_ = 0;  // of the join: the serial of the running task, and since when it has been the same
  std::chrono::steady_clock::time_point stuck_since_{};
};

}  // namespace cox
