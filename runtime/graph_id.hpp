#pragma once

#include <atomic>
#include <compare>
#include <cstdint>

namespace cox {

/// Names one captured graph of a server.
struct GraphId {
  std::uint64_t value = 0;

  friend constexpr auto operator<=>(GraphId, GraphId) = default;

  /// One that no other call has returned or will return in this process, and never 0. Any thread.
  [[nodiscard]] static GraphId next() noexcept {
    static constinit std::atomic<std::uint64_t> count{0};
    return {count.fetch_add(1, std::memory_order_relaxed) + 1};  // relaxed: only that they differ counts
  }
};

}  // namespace cox
