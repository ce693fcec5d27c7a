#pragma once

// For the .cu files of the embedding program, compiled by nvcc with -std=c++20: this is the only header of ours that
// includes the CUDA runtime, whose library is then the program's own. tests/headers leaves it out for that reason.

#include <coxswain/runtime/error/launch_error.hpp>
#include <coxswain/servers/cuda/kernel/cuda_kernel.hpp>

#include <cuda_runtime.h>

#include <string>
#include <utility>

namespace cox {

/// A __global__ function of the program as a kernel: global_kernel("scale", CubeDim::of_1d(256), &scale). Its
/// parameters are taken from its type unless the options have some: pointers are buffers, pointers to const are only
/// read, anything else is a scalar. The code is found in the program's own CUDA runtime, for each device at its first
/// launch there.
template <class... P>
[[nodiscard]] CudaKernel global_kernel(std::string name, CubeDim cube_dim, void (*function)(P...),
                                       CudaKernelOptions options = {}) {
  if (!options.parameters) options.parameters = KernelParameter::of_function(function);
  const auto resolve = [function]() -> void* {
    cudaFunction_t found = nullptr;
    const cudaError_t result = cudaGetFuncBySymbol(&found, reinterpret_cast<const void*>(function));
    if (result == cudaSuccess) return found;
    static_cast<void>(cudaGetLastError());  // it is told here, and not to be found by the program again
    throw LaunchError(
        LaunchError::Kind::NullFunction,
        std::string("the program has no code of the function for this ") + "device: " + cudaGetErrorName(result));
  };
  return CudaKernel::from_function(std::move(name), cube_dim, resolve, std::move(options));
}

}  // namespace cox
