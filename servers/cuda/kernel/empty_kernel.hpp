#pragma once

#include <coxswain/servers/cuda/compile/compile.hpp>
#include <coxswain/servers/cuda/driver/driver.hpp>

namespace cox::detail {

/// Loads a kernel without effect, which takes LaunchGraphs::max_argument_bytes of arguments, into the current context,
/// of a GPU with that compute capability. Needs no compiler. Throws LaunchError, CudaError.
[[nodiscard]] CUfunction load_empty_kernel(ComputeCapability device);

}  // namespace cox::detail
