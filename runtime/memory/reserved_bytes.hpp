#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>

namespace cox {

/// Bytes that a pool has taken from its storage, and the limit.
struct ReservedBytes {
  std::size_t capacity = std::numeric_limits<std::size_t>::max();
  std::size_t now = 0;
  std::size_t peak = 0;

  /// Also false if the capacity has been lowered below the reserved bytes.
  [[nodiscard]] bool has_room_for(std::size_t bytes) const noexcept {
    return now <= capacity && bytes <= capacity - now;
  }

  void add(std::size_t bytes) noexcept {
    now += bytes;
    peak = std::max(peak, now);
  }
  void remove(std::size_t bytes) noexcept { now -= bytes; }
};

}  // namespace cox
