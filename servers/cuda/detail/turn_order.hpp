#pragma once

#include <coxswain/runtime/unique_function.hpp>

#include <atomic>
#include <cstdint>
#include <map>
#include <set>
#include <utility>

namespace cox::detail {

/// Makes the ends of a device's collectives and transfers known to its other work in the order of their turns: not
/// before all that had its turn earlier has been issued, whenever they end.
///
/// StreamIds share streams of the driver, so work may come to stand behind work of others, and who waits for it behind
/// what they wait for. Let A have its turn before B, and wait for work of the device that has not been issued yet. If B
/// is issued meanwhile, and work behind B before that of A, on the same stream of the driver, then A waits for B; and
/// where the other rank of B waits for A, as it may, for ever. With this order nothing that waits for B is issued
/// before A is.
class TurnOrder {
 public:
  /// The next turn, of what will be issued later: counted from 1. In the order of the turns; any thread.
  [[nodiscard]] std::uint64_t take() noexcept { return taken_.fetch_add(1, std::memory_order_relaxed) + 1; }
  /// The last turn so far, of what will be. In the order of the turns; any thread.
  [[nodiscard]] std::uint64_t last() const noexcept { return taken_.load(std::memory_order_relaxed); }

  /// The turn's part has been issued, or never will be. Calls what waited for that. Device thread. Throws
  /// std::bad_alloc; then nothing has changed.
  void issued(std::uint64_t turn);
  /// Whether all up to that turn have been issued. Device thread.
  [[nodiscard]] bool all_issued(std::uint64_t turn) const noexcept { return turn <= issued_; }
  /// Calls `then`, which must not throw, when all up to that turn have been issued, which they have not yet. Device
  /// thread. Throws std::bad_alloc.
  void when_issued(std::uint64_t turn, UniqueFunction<void()> then) { waiting_.emplace(turn, std::move(then)); }

 private:
  std::atomic<std::uint64_t> taken_{0};  // relaxed: the sequencer's lock orders the turns
  std::uint64_t issued_ = 0;             // all up to here
  std::set<std::uint64_t> ahead_;        // of those after it
  std::multimap<std::uint64_t, UniqueFunction<void()>> waiting_;
};

}  // namespace cox::detail
