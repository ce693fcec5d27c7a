#pragma once

#include <coxswain/servers/cuda/driver/driver.hpp>
#include <coxswain/servers/cuda/kernel/kernel_definition.hpp>

namespace cox::detail {

/// The compute capability of a device.
struct ComputeCapability {
  int major = 0;
  int minor = 0;
};

/// The function of a kernel with a source or an image in the context that is current, on such a device, loaded. Its
/// code is brought into the process if it is not there yet: once for each key. Throws LaunchError Compilation,
/// NullFunction; CudaError.
[[nodiscard]] CUfunction function_of(const KernelDefinition& definition, ComputeCapability device);

}  // namespace cox::detail
