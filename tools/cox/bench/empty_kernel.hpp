#pragma once

#ifdef COX_HAS_CUDA
#include <coxswain/servers/cuda/kernel/cuda_kernel.hpp>
#endif
#include <coxswain/servers/host/kernel/host_kernel.hpp>

namespace cox::bench {

/// A kernel without arguments that does nothing.
template <class Kernel>
[[nodiscard]] Kernel empty_kernel();

template <>
[[nodiscard]] HostKernel empty_kernel();
#ifdef COX_HAS_CUDA
template <>
[[nodiscard]] CudaKernel empty_kernel();
#endif

}  // namespace cox::bench
