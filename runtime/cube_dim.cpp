#include <coxswain/runtime/cube_dim.hpp>

#include <algorithm>
#include <bit>

namespace cox {

CubeDim CubeDim::for_units(const HardwareProperties& hardware, std::size_t working_units) noexcept {
  const std::uint32_t plane = std::max<std::uint32_t>(hardware.plane_size, 1);
  const std::size_t planes = std::clamp<std::size_t>(working_units / plane, 1, 8);
  const auto wanted = static_cast<std::uint32_t>(std::bit_floor(planes));
  return of_2d(plane, std::max<std::uint32_t>(std::min(wanted, hardware.max_units_per_cube / plane), 1));
}

}  // namespace cox
