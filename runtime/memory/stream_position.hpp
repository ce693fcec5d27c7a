#pragma once

#include <compare>
#include <cstdint>

namespace cox {

/// A stream among those of one device, counted from 0.
enum class StreamSlot : std::uint32_t {};

/// The slot of no stream: what is done, or was never begun.
inline constexpr StreamSlot no_stream{~std::uint32_t{0}};

/// A point in the order of one stream's work: reached when so many of its pieces are done.
struct StreamPosition {
  StreamSlot stream = no_stream;
  std::uint64_t position = 0;

  friend bool operator==(const StreamPosition&, const StreamPosition&) = default;
};

}  // namespace cox
