#include <coxswain/runtime/launch/cube_count_selection.hpp>

#include <algorithm>

namespace cox {
namespace {

/// Halves `from` and doubles `to` until `from` is within `maximum`. Returns true if `from` was within its maximum
/// already; `to` is then unchanged, and the next axis needs no check.
bool spread_axis(std::uint32_t& from, std::uint32_t& to, std::uint32_t maximum) noexcept {
  const std::uint32_t allowed = std::max<std::uint32_t>(maximum, 1);
  if (from <= allowed) return true;
  while (from > allowed) {
    from = from / 2 + from % 2;
    to *= 2;
  }
  return false;
}

}  // namespace

CubeCount::Static spread_cube_count(const CubeCount::Static& maximum, std::uint32_t cubes) noexcept {
  CubeCount::Static count{cubes, 1, 1};
  if (!spread_axis(count.x, count.y, maximum.x)) spread_axis(count.y, count.z, maximum.y);
  return count;
}

CubeCountSelection::CubeCountSelection(const HardwareProperties& hardware, std::uint32_t cubes) noexcept
    : count_(spread_cube_count({hardware.max_cube_count[0], hardware.max_cube_count[1], hardware.max_cube_count[2]},
                               cubes)),
      wanted_(cubes),
      actual_(std::uint64_t{count_.x} * count_.y * count_.z) {}

}  // namespace cox
