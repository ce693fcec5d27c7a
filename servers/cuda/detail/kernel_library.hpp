#pragma once

#include <coxswain/servers/cuda/detail/driver.hpp>
#include <coxswain/servers/cuda/detail/kernel_definition.hpp>

#include <string>

namespace cox::detail {

/// Code in the process, and what the kernel in it is called.
struct KernelLibrary {
  CUlibrary library = nullptr;
  std::string function;  ///< the lowered name of a name expression; empty: the kernel's own
};

/// The compute capability of a device.
struct ComputeCapability {
  int major = 0;
  int minor = 0;
};

/// That of a kernel with a source or an image, loaded if it is not yet: once in the process for each key. Throws
/// LaunchError Compilation, CudaError.
[[nodiscard]] KernelLibrary library_of(const KernelDefinition& definition, ComputeCapability device);

}  // namespace cox::detail
