#pragma once

#include <atomic>
#include <compare>
#include <cstdint>

namespace cox {

/// Names one open profile of a stream.
struct ProfilingToken {
  std::uint64_t value = 0;

  friend constexpr auto operator<=>(ProfilingToken, ProfilingToken) = default;

  /// One that no other call has returned or will return in this process, and never 0: a token of another stream or
  /// device is taken for what it is. Any thread.
  [[nodiscard]] static ProfilingToken next() noexcept {
    static constinit std::atomic<std::uint64_t> count{0};
    return {count.fetch_add(1, std::memory_order_relaxed) + 1};  // relaxed: only that they differ counts
  }
};

}  // namespace cox
