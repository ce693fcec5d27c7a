#pragma once

#include <coxswain/device_handle/base/unique_function.hpp>

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace cox::detail {

/// Keeps two things of the process apart (T1): collectives that some devices have been given and others not, and what
/// may wait for running kernels, perhaps with a lock of the driver held: making a communicator, loading code. While
/// a caller holds what quiesce() returned, no rank submits an operation, and no deadline of the sequencer's passes;
/// what has been released by then is launched on all its devices first. Any thread.
class LaunchGate {
 public:
  /// The process's. Never destroyed.
  [[nodiscard]] static LaunchGate& of_process();

  /// Whether a rank may ask for an operation; then leave() when it has.
  [[nodiscard]] bool try_enter() noexcept;
  /// The same; if not, `then` is called when it may; it must not block. Throws std::bad_alloc.
  [[nodiscard]] bool try_enter(UniqueFunction<void()> then);
  void leave() noexcept { count_down(); }
  /// A part has been released, or a device told of some: by a rank that has entered, or by one that waits for it.
  void add_launch() noexcept { count_up(); }
  /// It has been launched, or never will be; the device has taken up what it was told of.
  void remove_launch() noexcept { count_down(); }

  /// Nothing is asked for as long as somebody holds what is returned. Blocks until all that was released has been
  /// launched; not on a device thread, which has to do that. Throws CollectiveError Timeout if it takes a minute.
  [[nodiscard]] std::shared_ptr<void> quiesce();

 private:
  // Of the ranks that ask, and of parts: how many entered and left, by threads that share this place. All device
  // threads count for each operation, so each has a line of memory of its own; one thread may count up and another
  // down.
  struct alignas(64) Count {
    std::atomic<std::uint64_t> entered{0};
    std::atomic<std::uint64_t> left{0};
  };

  [[nodiscard]] Count& count_of_this_thread() noexcept;
  void count_up() noexcept { count_of_this_thread().entered.fetch_add(1, std::memory_order_seq_cst); }
  void count_down() noexcept;
  [[nodiscard]] bool is_quiescent() const noexcept;
  void open() noexcept;

  // Who enters counts himself, then looks whether it is closed; who closes does so, then looks at the counts: in one
  // order for all, so that one of the two sees the other.
  std::array<Count, 16> counts_{};
  std::atomic<std::size_t> closed_{0};  // by so many; written with mutex_ held
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<UniqueFunction<void()>> waiting_;  // guarded by mutex_
};

}  // namespace cox::detail
