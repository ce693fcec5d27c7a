#pragma once

#include <coxswain/device_handle/base/unique_function.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace cox::detail {

/// Publishes the completion of a device's collectives and transfers to its other work in the order of their turns,
/// which is the order in which the sequencer released them. A completion is published only after all operations with
/// earlier turns have been issued, even if the operation itself completes before that.
///
/// StreamIds share driver streams, so work can be queued after unrelated work of another StreamId and then inherits its
/// waits. Let A have its turn before B, and let A wait for work W of the device that has not been issued yet. Suppose
/// that B is issued first, and that work which waits for B is then issued on the driver stream of W, before W. Then A
/// waits for B. If the other rank of B waits for A, which is allowed, both wait forever. With this order no work that
/// waits for B is issued before A.
class CompletionOrder {
 public:
  /// Reserves room for one turn; call it before each take(). Device thread. Throws std::bad_alloc; then nothing has
  /// changed.
  void reserve();
  /// Cancels one reservation: its turn will not be taken. Any thread.
  void cancel() noexcept { reserved_.fetch_sub(1, std::memory_order_relaxed); }
  /// Takes the next turn, for an operation that will be issued later. Turns count from 1. Calls must be made in release
  /// order. Any thread.
  [[nodiscard]] std::uint64_t take() noexcept {
    const std::uint64_t turn = taken_.fetch_add(1, std::memory_order_acq_rel) + 1;
    reserved_.fetch_sub(1, std::memory_order_release);  // pairs with the acquire in reserve(): after taken_, so that a
                                                        // turn is missing in neither
    return turn;
  }
  /// The last turn that was taken. Calls must be made in release order. Any thread.
  [[nodiscard]] std::uint64_t last() const noexcept { return taken_.load(std::memory_order_relaxed); }

  /// Marks a turn as issued: its launch has been issued, or never will be. Calls the functions that waited for that.
  /// Device thread.
  void issued(std::uint64_t turn) noexcept;
  /// Whether all turns up to that one have been issued. Device thread.
  [[nodiscard]] bool all_issued(std::uint64_t turn) const noexcept { return turn <= issued_; }
  /// Calls `then`, which must not throw, when all turns up to `turn` have been issued. Precondition: not all of them
  /// have been. Device thread. Throws std::bad_alloc.
  void when_issued(std::uint64_t turn, UniqueFunction<void()> then) { waiting_.emplace(turn, std::move(then)); }

 private:
  std::atomic<std::uint64_t> taken_{0};
  std::atomic<std::size_t> reserved_{0};  // reservations whose turn has not been taken
  std::uint64_t issued_ = 0;              // all turns up to this one have been issued
  std::vector<bool> ahead_;  // whether later turns have been issued: by turn modulo the size, with room for all taken
                             // and reserved turns
  std::multimap<std::uint64_t, UniqueFunction<void()>> waiting_;
};

}  // namespace cox::detail
