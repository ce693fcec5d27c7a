#pragma once

#include <coxswain/runtime/cube_count.hpp>
#include <coxswain/runtime/device_properties.hpp>
#include <coxswain/runtime/kernel_arguments.hpp>
#include <coxswain/runtime/place.hpp>
#include <coxswain/servers/host/host_kernel.hpp>

#include <source_location>
#include <string>

namespace cox::detail {

/// "kernel 'scale' on DeviceId(type=0, index=0), stream 3": how errors of a launch begin.
[[nodiscard]] std::string launch_name(const HostKernel& kernel, const Place& place);

/// What can be known before the kernel's turn. Throws LaunchError NullFunction, ArgumentCount or TooManyResources.
void require_launchable(const HostKernel& kernel, const KernelArguments& arguments, const HardwareProperties& hardware,
                        const Place& place, std::source_location site);
/// Throws LaunchError TooManyResources.
void require_cube_count(const CubeCount::Static& count, const HardwareProperties& hardware, const HostKernel& kernel,
                        const Place& place, std::source_location site);

}  // namespace cox::detail
