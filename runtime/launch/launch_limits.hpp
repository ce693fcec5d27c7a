#pragma once

#include <coxswain/runtime/base/device_properties.hpp>
#include <coxswain/runtime/base/location.hpp>
#include <coxswain/runtime/launch/cube_count.hpp>
#include <coxswain/runtime/launch/cube_dim.hpp>

#include <cstddef>
#include <source_location>
#include <string>
#include <string_view>

namespace cox::detail {

/// The properties of a kernel that are checked against a device's limits.
struct LaunchedKernel {
  std::string_view name;
  CubeDim cube_dim;
};

/// "kernel 'scale' on host:0, stream 3": the beginning of launch error messages.
[[nodiscard]] std::string launch_name(std::string_view kernel, const Location& location);

/// Throws LaunchError ArgumentCount unless the number of buffers given is the number that the kernel takes.
void require_buffer_count(const LaunchedKernel& kernel, std::size_t takes, std::size_t given, const Location& location,
                          std::source_location site);
/// Throws LaunchError TooManyResources if the number of buffers exceeds the device's limit.
void require_buffer_limit(const LaunchedKernel& kernel, std::size_t buffers, const HardwareProperties& hardware,
                          const Location& location, std::source_location site);
/// Throws LaunchError TooManyResources if the cube's dimensions or its number of units exceed the device's limits, or
/// if the cube has no units.
void require_cube_dim(const LaunchedKernel& kernel, const HardwareProperties& hardware, const Location& location,
                      std::source_location site);
/// Throws LaunchError TooManyResources if the number of cubes along an axis exceeds the device's limit.
void require_cube_count(const LaunchedKernel& kernel, const CubeCount::Static& count,
                        const HardwareProperties& hardware, const Location& location, std::source_location site);
/// Throws LaunchError TooManyResources if `bytes` exceeds the device's limit of shared memory per cube.
void require_shared_memory(const LaunchedKernel& kernel, std::size_t bytes, const HardwareProperties& hardware,
                           const Location& location, std::source_location site);

}  // namespace cox::detail
