#pragma once

#include <coxswain/servers/cuda/kernel/cuda_kernel.hpp>

namespace cox::perf {

/// A kernel that takes so many 64-bit parameters and does nothing. It is PTX: no compiler is needed.
[[nodiscard]] CudaKernel empty_kernel(unsigned parameters);

}  // namespace cox::perf
