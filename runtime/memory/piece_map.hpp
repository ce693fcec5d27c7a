#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace cox {

/// Which piece of memory is behind each granule of a range of addresses. Pieces are of one granule or several, lie
/// behind consecutive granules, and are mapped and unmapped whole. Granules are counted from 0. Not thread-safe.
class PieceMap {
 public:
  using Piece = std::uint32_t;
  /// Nothing is behind a granule.
  static constexpr Piece none = 0;

  struct Run {
    std::size_t first = 0;
    std::size_t count = 0;
  };
  /// Whether a run may have a few granules more than was asked for, where pieces do not come out even.
  enum class Excess : std::uint8_t { Forbidden, Allowed };

  /// Nothing is behind any of so many granules. Throws std::bad_alloc.
  void reset(std::size_t granules) { places_.assign(granules, {}); }

  [[nodiscard]] Piece piece_at(std::size_t granule) const noexcept { return places_[granule].piece; }
  /// Of the piece behind that granule.
  [[nodiscard]] std::size_t size_at(std::size_t granule) const noexcept { return places_[granule].size; }

  void put(std::size_t first, Piece piece, std::uint16_t size) noexcept {
    for (std::uint16_t i = 0; i < size; ++i) places_[first + i] = {piece, i, size};
  }
  /// Takes the piece away that begins behind that granule.
  void remove(std::size_t first) noexcept { std::fill_n(&places_[first], size_at(first), Extent{}); }

  /// Of the pieces that lie within [begin, end), all of which has memory: the last ones, next to each other, that
  /// together have `most` granules, or as many as there are.
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
      } else {  // a piece that lies partly outside, or is too large: before it there may be others
        run.first -= std::min<std::size_t>(last.offset + 1U, run.first - begin);
      }
    }
    return run;
  }

 private:
  struct Extent {
    Piece piece = none;
    std::uint16_t offset = 0;  // of the granule in the piece
    std::uint16_t size = 0;    // granules of the piece
  };
  std::vector<Extent> places_;
};

}  // namespace cox
