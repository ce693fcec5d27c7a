#pragma once

// For the .cu files of the embedding program, compiled by nvcc with -std=c++20. This is the only header of the library
// that includes the CUDA runtime; the program itself links that library. tests/headers leaves this header out for that
// reason.

#include <coxswain/runtime/error/launch_error.hpp>
#include <coxswain/servers/cuda/kernel/cuda_kernel.hpp>

#include <cuda_runtime.h>

#include <string>
#include <utility>

namespace cox {

/// Makes a kernel of a `__global__` function of the program: global_kernel("scale", CubeDim::of_1d(256), &scale). The
/// parameters are derived from the function's type unless the options have some: a pointer is a buffer, a pointer to
/// const is a buffer that is only read, anything else is a scalar. The code is looked up in the program's own CUDA
/// runtime, for each device at the first launch there.
template <class... P>
[[nodiscard]] CudaKernel global_kernel(std::string name, CubeDim cube_dim, void (*function)(P...),
                                       CudaKernelOptions options = {}) {
  if (!options.parameters) options.parameters = KernelParameter::of_function(function);
  const auto resolve = [function]() -> void* {
    cudaFunction_t found = nullptr;
    const cudaError_t result = cudaGetFuncBySymbol(&found, reinterpret_cast<const void*>(function));
    if (result == cudaSuccess) return found;
    static_cast<void>(cudaGetLastError());  // clears the error for the program, since it is reported here
    throw LaunchError(
        LaunchError::Kind::NullFunction,
        std::string("the program has no code of the function for this ") + "device: " + cudaGetErrorName(result));
  };
  return CudaKernel::from_function(std::move(name), cube_dim, resolve, std::move(options));
}

}  // namespace cox
