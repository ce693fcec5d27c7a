#pragma once

#include <kernels/kernel_list.hpp>

namespace on_cpu {

/// Runs one block of a CUDA kernel: the cube of the context. `name`: of the kernel. `bfloat16`: the type of
/// activations. Throws std::logic_error if the kernel's signature does not match the arguments of the launch.
void run_block(const char* name, bool bfloat16, std::uint32_t threads, const cox::KernelContext& context);

}  // namespace on_cpu
