#pragma once

#include <compare>
#include <cstdint>

namespace cox {

/// The index of a stream among those of one device, from 0.
enum class StreamSlot : std::uint32_t {};

/// The slot of no stream, for work that has completed or was never queued.
inline constexpr StreamSlot no_stream{~std::uint32_t{0}};

/// A point in the work of one stream: reached when `position` pieces of its work have completed.
struct StreamPosition {
  StreamSlot stream = no_stream;
  std::uint64_t position = 0;

  friend bool operator==(const StreamPosition&, const StreamPosition&) = default;
};

}  // namespace cox
