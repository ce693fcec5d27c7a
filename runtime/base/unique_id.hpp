#pragma once

#include <atomic>
#include <compare>
#include <cstdint>

namespace cox {

/// Names one thing of its kind in the process: what was given to one device or stream is recognised as foreign by
/// another. `Kind` tells the ids of different kinds apart.
template <class Kind>
struct UniqueId {
  std::uint64_t value = 0;

  friend constexpr auto operator<=>(UniqueId, UniqueId) = default;

  /// One that no other call has returned or will return in this process, and never 0. Any thread.
  [[nodiscard]] static UniqueId next() noexcept {
    static constinit std::atomic<std::uint64_t> count{0};
    return {count.fetch_add(1, std::memory_order_relaxed) + 1};  // relaxed: only that they differ counts
  }
};

}  // namespace cox
