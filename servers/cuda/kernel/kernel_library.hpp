#pragma once

#include <coxswain/servers/cuda/compile/compile.hpp>
#include <coxswain/servers/cuda/driver/driver.hpp>

#include <cstddef>
#include <span>
#include <string>

namespace cox::detail {

/// Loads the function `name` of a source or an image in the current context, of a GPU with compute capability `device`.
/// The code is compiled and loaded into the process if it is not there yet, once for each KernelKey, and shared by
/// devices and kernels; it is never unloaded. Throws LaunchError Compilation, OutOfMemory, NullFunction; CudaError.
[[nodiscard]] CUfunction load_from_source(const KernelSource& source, const std::string& name,
                                          ComputeCapability device);
[[nodiscard]] CUfunction load_from_image(std::span<const std::byte> image, const std::string& name,
                                         ComputeCapability device);

/// Compiles the source for compute capability `device` into the process's cache on disk, unless it is there. Needs no
/// driver. Throws LaunchError Compilation, also if the options name folders or files; Error if there is no cache, or it
/// cannot be written.
void precompile(const KernelSource& source, const std::string& name, ComputeCapability device);

}  // namespace cox::detail
