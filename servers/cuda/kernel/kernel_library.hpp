#pragma once

#include <coxswain/servers/cuda/driver/driver.hpp>
#include <coxswain/servers/cuda/kernel/kernel_definition.hpp>

namespace cox::detail {

/// The compute capability of a device.
struct ComputeCapability {
  int major = 0;
  int minor = 0;
};

/// Loads the function of a kernel that has a source or an image in the current context, which is that of such a device.
/// The code is compiled and loaded into the process if it is not there yet, once for each KernelKey. Throws LaunchError
/// Compilation, OutOfMemory, NullFunction; CudaError.
[[nodiscard]] CUfunction function_of(const KernelDefinition& definition, ComputeCapability device);

}  // namespace cox::detail
