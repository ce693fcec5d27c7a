#pragma once

#include <coxswain/device_handle/base/unique_function.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace cox::detail {

/// Keeps two things in the process from overlapping, which could deadlock (T1): collectives that have been launched on
/// some of their devices but not on all, and calls that may wait for running kernels, perhaps while holding a driver
/// lock. Such calls create or destroy a communicator, or load code. While a caller holds the object that quiesce()
/// returned, no rank submits an operation (but refused ones, which launch nothing), the sequencer releases none for any
/// other reason, such as an abort or a release of the leader of the world, and no deadline of the sequencer expires
/// (Sequencer::freeze). Operations that were released before are launched on all their devices first. Any thread.
class LaunchGate {
 public:
  /// The gate of the process. Never destroyed.
  [[nodiscard]] static LaunchGate& of_process();

  /// Enters the gate if it is open. A rank must have entered to submit operations that can be released, and
  /// calls leave() after that.
  /// Returns false if the gate is closed.
  [[nodiscard]] bool try_enter() noexcept;
  /// Enters the gate if it is open. If it is closed, returns false and calls `then`, which must not block, when the
  /// gate opens. Throws std::bad_alloc.
  [[nodiscard]] bool try_enter(UniqueFunction<void()> then);
  void leave() noexcept { count_down(); }
  /// Counts a part that has been released, or a device that was notified of launches. The sequencer calls this while it
  /// passes a release on, for which Sequencer::freeze waits; while it is frozen, the caller has entered the gate or is
  /// counted by it, unless it notifies of operations that are refused, which launch nothing.
  void add_launch() noexcept { count_up(); }
  /// Ends one add_launch(): the part has been launched or never will be, or the device has drained the launches that it
  /// was notified of.
  void remove_launch() noexcept { count_down(); }

  /// For what a caller holds the gate closed. Only callers with the same purpose hold it at the same time. Create: NCCL
  /// creates communicators, and launches kernels of its own on one device after the other, which another caller's wait
  /// could hold up (T2); one caller at a time. Wait: calls that may wait for running kernels. Foreign: code outside the
  /// library, such as that of several ranks, which may wait for each other.
  enum class Purpose : std::uint8_t { Create, Wait, Foreign };

  /// Closes the gate for as long as the returned object exists. Blocks while it is held for another purpose, which may
  /// take any time, then until all released operations have been launched. Not on a device thread, since device threads
  /// launch them. Throws CollectiveError Timeout if the latter takes a minute; then the gate is not closed by this
  /// call. A thread that holds it for Foreign does not block, and holds it once more for that purpose: foreign code may
  /// call what may wait for kernels.
  [[nodiscard]] std::shared_ptr<void> quiesce(Purpose purpose);
  /// The same, but returns null if both together take longer than `within`; Sequencer::freeze() and
  /// wait_for_notifications(), which it calls, have no time limit. May throw std::bad_alloc.
  [[nodiscard]] std::shared_ptr<void> try_quiesce(std::chrono::milliseconds within, Purpose purpose = Purpose::Wait);

 private:
  // How many ranks and parts have entered and left, counted by the threads that share this slot. All device threads
  // count for each operation, so each slot has a cache line of its own. One thread may count up and another one down.
  struct alignas(64) Count {
    std::atomic<std::uint64_t> entered{0};
    std::atomic<std::uint64_t> left{0};
  };

  [[nodiscard]] Count& count_of_this_thread() noexcept;
  void count_up() noexcept { count_of_this_thread().entered.fetch_add(1, std::memory_order_seq_cst); }
  void count_down() noexcept;
  [[nodiscard]] bool is_quiescent() const noexcept;
  [[nodiscard]] bool can_close(Purpose purpose) const noexcept {
    return closed_ == 0 || (purpose == purpose_ && purpose != Purpose::Create);
  }
  [[nodiscard]] bool holds_for_foreign(std::thread::id thread) const noexcept;
  [[nodiscard]] std::shared_ptr<void> close(Purpose purpose, std::unique_lock<std::mutex>& lock);
  [[nodiscard]] bool wait_until_quiescent(std::unique_lock<std::mutex>& lock,
                                          std::chrono::steady_clock::time_point deadline);
  void open(std::thread::id foreign) noexcept;

  // A thread that enters counts up, then reads closed_; a thread that closes the gate writes closed_, then reads the
  // counts. All of these are seq_cst and thus in one order for all threads, so at least one of the two sees the other.
  std::array<Count, 16> counts_{};
  std::atomic<std::size_t> closed_{0};    // number of callers that hold it closed; written with mutex_ held
  Purpose purpose_{};                     // guarded by mutex_: of those callers
  std::vector<std::thread::id> foreign_;  // guarded by mutex_: the threads of those callers, if it is Foreign
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<UniqueFunction<void()>> waiting_;  // guarded by mutex_
};

}  // namespace cox::detail
