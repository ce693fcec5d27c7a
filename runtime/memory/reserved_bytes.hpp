#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>

namespace cox {

/// How many bytes a pool has taken from its storage, and how many it may.
struct ReservedBytes {
  std::size_t capacity = std::numeric_limits<std::size_t>::max();
  std::size_t now = 0;
  std::size_t peak = 0;

  /// The capacity may have been lowered below what is reserved: then there is no room.
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
