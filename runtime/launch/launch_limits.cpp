#include <coxswain/runtime/launch/launch_limits.hpp>

#include <coxswain/runtime/error/launch_error.hpp>

#include <array>
#include <cstdint>

namespace cox::detail {
namespace {

using Triple = std::array<std::uint64_t, 3>;

Triple widen(const std::array<std::uint32_t, 3>& values) { return {values[0], values[1], values[2]}; }

bool exceeds(const Triple& requested, const Triple& maximum) {
  return requested[0] > maximum[0] || requested[1] > maximum[1] || requested[2] > maximum[2];
}

void require_within(ResourceLimit::Resource resource, const Triple& requested, const Triple& maximum,
                    const LaunchedKernel& kernel, const Location& location, std::source_location site) {
  if (exceeds(requested, maximum))
    throw LaunchError::too_many_resources(launch_name(kernel.name, location), {resource, requested, maximum}, site);
}

}  // namespace

std::string launch_name(std::string_view kernel, const Location& location) {
  return "kernel '" + std::string(kernel) + "' on " + location.to_string();
}

void require_buffer_count(const LaunchedKernel& kernel, std::size_t takes, std::size_t given, const Location& location,
                          std::source_location site) {
  if (given == takes) return;
  throw LaunchError(LaunchError::Kind::ArgumentCount,
                    launch_name(kernel.name, location) + " takes " + std::to_string(takes) +
                        " buffers, but was given " + std::to_string(given),
                    site);
}

void require_buffer_limit(const LaunchedKernel& kernel, std::size_t buffers, const HardwareProperties& hardware,
                          const Location& location, std::source_location site) {
  if (buffers <= hardware.max_bindings) return;
  throw LaunchError::too_many_resources(
      launch_name(kernel.name, location),
      {ResourceLimit::Resource::Buffers, {buffers, 0, 0}, {hardware.max_bindings, 0, 0}}, site);
}

void require_cube_dim(const LaunchedKernel& kernel, const HardwareProperties& hardware, const Location& location,
                      std::source_location site) {
  const CubeDim& dim = kernel.cube_dim;
  require_within(ResourceLimit::Resource::CubeDim, {dim.x, dim.y, dim.z}, widen(hardware.max_cube_dim), kernel,
                 location, site);
  require_within(ResourceLimit::Resource::UnitsPerCube, {dim.unit_count(), 0, 0}, {hardware.max_units_per_cube, 0, 0},
                 kernel, location, site);
  if (dim.unit_count() == 0)
    throw LaunchError(
        LaunchError::Kind::TooManyResources,
        launch_name(kernel.name, location) + ": a cube of " + to_string(dim) + " has no units", site, nullptr,
        ResourceLimit{ResourceLimit::Resource::CubeDim, {dim.x, dim.y, dim.z}, widen(hardware.max_cube_dim)});
}

void require_cube_count(const LaunchedKernel& kernel, const CubeCount::Static& count,
                        const HardwareProperties& hardware, const Location& location, std::source_location site) {
  require_within(ResourceLimit::Resource::CubeCount, {count.x, count.y, count.z}, widen(hardware.max_cube_count),
                 kernel, location, site);
}

void require_shared_memory(const LaunchedKernel& kernel, std::size_t bytes, const HardwareProperties& hardware,
                           const Location& location, std::source_location site) {
  require_within(ResourceLimit::Resource::SharedMemory, {bytes, 0, 0}, {hardware.max_shared_memory, 0, 0}, kernel,
                 location, site);
}

}  // namespace cox::detail
