#pragma once

#include <coxswain/device_handle/base/visibility.hpp>

#include <atomic>
#include <compare>
#include <cstdint>

namespace cox {

/// An id that is unique in the process within its kind, so that a device or stream recognises an id that was given out
/// by another one. `Kind` makes ids of different kinds different types; it is declared COX_VISIBILITY_DEFAULT.
template <class Kind>
struct COX_VISIBILITY_DEFAULT UniqueId {
  std::uint64_t value = 0;

  friend constexpr auto operator<=>(UniqueId, UniqueId) = default;

  /// Returns an id that no other call in this process returns; never 0. Any thread.
  [[nodiscard]] static UniqueId next() noexcept {
    static constinit std::atomic<std::uint64_t> count{0};
    return {count.fetch_add(1, std::memory_order_relaxed) + 1};  // relaxed: the ids only have to differ
  }
};

}  // namespace cox
