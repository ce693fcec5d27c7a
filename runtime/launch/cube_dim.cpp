#include <coxswain/runtime/launch/cube_dim.hpp>

#include <algorithm>
#include <bit>

namespace cox {

CubeDim CubeDim::for_units(const HardwareProperties& hardware, std::size_t working_units) noexcept {
  const std::uint32_t plane = std::max<std::uint32_t>(hardware.plane_size, 1);
  const auto planes = static_cast<std::uint32_t>(std::clamp<std::size_t>(working_units / plane, 1, 8));
  const std::uint32_t wanted =
      hardware.cpu_threads == 0
          ? std::bit_floor(planes)
          : static_cast<std::uint32_t>(std::min<std::size_t>(hardware.cpu_threads, working_units));
  return of_2d(plane, std::max<std::uint32_t>(std::min(wanted, hardware.max_units_per_cube / plane), 1));
}

}  // namespace cox
