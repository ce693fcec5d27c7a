#include <coxswain/servers/host/detail/launch_limits.hpp>

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
                    const HostKernel& kernel, const Place& place, std::source_location site) {
  if (exceeds(requested, maximum))
    throw LaunchError::too_many_resources(launch_name(kernel, place), {resource, requested, maximum}, site);
}

}  // namespace

std::string launch_name(const HostKernel& kernel, const Place& place) {
  return "kernel '" + kernel.name() + "' on " + place.to_string();
}

void require_launchable(const HostKernel& kernel, const KernelArguments& arguments, const HardwareProperties& hardware,
                        const Place& place, std::source_location site) {
  if (!kernel.function())
    throw LaunchError(LaunchError::Kind::NullFunction, launch_name(kernel, place) + " has no function to run", site);
  if (arguments.buffers.size() != kernel.buffer_count())
    throw LaunchError(LaunchError::Kind::ArgumentCount,
                      launch_name(kernel, place) + " takes " + std::to_string(kernel.buffer_count()) +
                          " buffers, but was given " + std::to_string(arguments.buffers.size()),
                      site);
  const CubeDim& dim = kernel.cube_dim();
  require_within(ResourceLimit::Resource::CubeDim, {dim.x, dim.y, dim.z}, widen(hardware.max_cube_dim), kernel, place,
                 site);
  require_within(ResourceLimit::Resource::UnitsPerCube, {dim.unit_count(), 0, 0}, {hardware.max_units_per_cube, 0, 0},
                 kernel, place, site);
  if (dim.unit_count() == 0)
    throw LaunchError(LaunchError::Kind::TooManyResources,
                      launch_name(kernel, place) + ": a cube of " + to_string(dim) + " has no units", site);
}

void require_cube_count(const CubeCount::Static& count, const HardwareProperties& hardware, const HostKernel& kernel,
                        const Place& place, std::source_location site) {
  require_within(ResourceLimit::Resource::CubeCount, {count.x, count.y, count.z}, widen(hardware.max_cube_count),
                 kernel, place, site);
}

}  // namespace cox::detail
