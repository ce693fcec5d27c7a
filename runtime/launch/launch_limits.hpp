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

/// A kernel as far as a device's limits matter to it.
struct LaunchedKernel {
  std::string_view name;
  CubeDim cube_dim;
};

/// "kernel 'scale' on host:0, stream 3": how errors of a launch begin.
[[nodiscard]] std::string launch_name(std::string_view kernel, const Location& location);

/// Throws LaunchError ArgumentCount unless the kernel was given as many buffers as it takes.
void require_buffer_count(const LaunchedKernel& kernel, std::size_t takes, std::size_t given, const Location& location,
                          std::source_location site);
/// Throws LaunchError TooManyResources unless the device can run such a cube.
void require_buffer_limit(const LaunchedKernel& kernel, std::size_t buffers, const HardwareProperties& hardware,
                          const Location& location, std::source_location site);
void require_cube_dim(const LaunchedKernel& kernel, const HardwareProperties& hardware, const Location& location,
                      std::source_location site);
/// Throws LaunchError TooManyResources unless the device can run so many cubes.
void require_cube_count(const LaunchedKernel& kernel, const CubeCount::Static& count,
                        const HardwareProperties& hardware, const Location& location, std::source_location site);
/// Throws LaunchError TooManyResources unless a cube can have so many bytes of shared memory.
void require_shared_memory(const LaunchedKernel& kernel, std::size_t bytes, const HardwareProperties& hardware,
                           const Location& location, std::source_location site);

}  // namespace cox::detail
