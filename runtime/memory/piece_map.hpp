#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace cox {

/// The piece of memory that is mapped at each granule of a range of addresses. A piece has one or several granules, is
/// mapped at consecutive granules, and is mapped and unmapped as a whole. Granules are numbered from 0. Not
/// thread-safe.
class PieceMap {
 public:
  using Piece = std::uint32_t;
  /// The granule has no memory.
  static constexpr Piece none = 0;

  struct Run {
    std::size_t first = 0;
    std::size_t count = 0;
  };
  /// Whether a run may have more granules than requested, because pieces cannot be divided.
  enum class Excess : std::uint8_t { Forbidden, Allowed };

  /// Makes a map of `granules` granules without memory. Throws std::bad_alloc.
  void reset(std::size_t granules) { places_.assign(granules, {}); }

  [[nodiscard]] Piece piece_at(std::size_t granule) const noexcept { return places_[granule].piece; }
  /// Granules of the piece at that granule.
  [[nodiscard]] std::size_t size_at(std::size_t granule) const noexcept { return places_[granule].size; }

  void put(std::size_t first, Piece piece, std::uint16_t size) noexcept {
    for (std::uint16_t i = 0; i < size; ++i) places_[first + i] = {piece, i, size};
  }
  /// Removes the piece that begins at granule `first`.
  void remove(std::size_t first) noexcept { std::fill_n(&places_[first], size_at(first), Extent{}); }

  /// The last run of adjacent pieces that lie within [begin, end) and together have `most` granules, or as many as
  /// there are. Precondition: every granule in [begin, end) has memory.
  [[nodiscard]] Run last_whole(std::size_t begin, std::size_t end, std::size_t most, Excess excess) const noexcept {
    Run run{end, 0};
    while (run.first > begin && run.count < most) {
      const Extent& last = places_[run.first - 1];
      const bool ends_here = last.offset + 1U == last.size;
      const bool fits =
          ends_here && run.first - begin >= last.size && (excess == Excess::Allowed || run.count + last.size <= most);
      if (fits) {
        run = {run.first - last.size, run.count + last.size};
      } else if (run.count != 0) {
        break;
      } else {  // the piece is partly outside, or too large: try those before it
        run.first -= std::min<std::size_t>(last.offset + 1U, run.first - begin);
      }
    }
    return run;
  }

 private:
  struct Extent {
    Piece piece = none;
    std::uint16_t offset = 0;  // index of the granule in the piece
    std::uint16_t size = 0;    // granules of the piece
  };
  std::vector<Extent> places_;
};

}  // namespace cox
