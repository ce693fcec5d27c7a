#pragma once

#include <coxswain/device_handle/base/unique_function.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace cox::detail {

/// Makes the ends of a device's collectives and transfers known to its other work in the order of their turns: not
/// before all that had its turn earlier has been issued, whenever they end.
///
/// StreamIds share streams of the driver, so work may come to stand behind work of others, and who waits for it behind
/// what they wait for. Let A have its turn before B, and wait for work of the device that has not been issued yet. If B
/// is issued meanwhile, and work behind B before that of A, on the same stream of the driver, then A waits for B; and
/// where the other rank of B waits for A, as it may, for ever. With this order nothing that waits for B is issued
/// before A is.
class CompletionOrder {
 public:
  /// Makes room for a turn: before each take(). Device thread. Throws std::bad_alloc; then nothing has changed.
  void reserve();
  /// The turn that was expected will not come. Any thread.
  void cancel() noexcept { reserved_.fetch_sub(1, std::memory_order_relaxed); }
  /// The next turn, of what will be issued later: counted from 1. In the order of the turns; any thread.
  [[nodiscard]] std::uint64_t take() noexcept {
    const std::uint64_t turn = taken_.fetch_add(1, std::memory_order_acq_rel) + 1;
    reserved_.fetch_sub(1, std::memory_order_release);  // after it: reserve() finds the one or the other
    return turn;
  }
  /// The last turn so far, of what will be. In the order of the turns; any thread.
  [[nodiscard]] std::uint64_t last() const noexcept { return taken_.load(std::memory_order_relaxed); }

  /// The turn's part has been issued, or never will be. Calls what waited for that. Device thread.
  void issued(std::uint64_t turn) noexcept;
  /// Whether all up to that turn have been issued. Device thread.
  [[nodiscard]] bool all_issued(std::uint64_t turn) const noexcept { return turn <= issued_; }
  /// Calls `then`, which must not throw, when all up to that turn have been issued, which they have not yet. Device
  /// thread. Throws std::bad_alloc.
  void when_issued(std::uint64_t turn, UniqueFunction<void()> then) { waiting_.emplace(turn, std::move(then)); }

 private:
  std::atomic<std::uint64_t> taken_{0};
  std::atomic<std::size_t> reserved_{0};  // turns that have not been taken
  std::uint64_t issued_ = 0;              // all up to here
  std::vector<bool> ahead_;  // whether those after it have been: by turn modulo the size, for all taken and expected
  std::multimap<std::uint64_t, UniqueFunction<void()>> waiting_;
};

}  // namespace cox::detail
