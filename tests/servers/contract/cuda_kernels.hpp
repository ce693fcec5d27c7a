#pragma once

#include <coxswain/servers/cuda/kernel/cuda_kernel.hpp>

#include <array>

namespace cox::test {

/// The kernels of CudaBackend. Elements are unsigned, of which each kernel is told the number; any number of units does
/// all of them, unless said otherwise.
struct CudaKernels {
  CudaKernel fill;          ///< data, count, value
  CudaKernel copy;          ///< from, to, count
  CudaKernel add_to;        ///< from, to, count
  CudaKernel plus_one;      ///< from, to, count
  CudaKernel add;           ///< left, right, to, count
  CudaKernel multiply_add;  ///< data, count, factor, summand: one element a unit
  CudaKernel indices;       ///< data
  CudaKernel nothing;
  CudaKernel misused;  ///< three buffers
  CudaKernel peek;     ///< to, bytes, address
  CudaKernel poke;     ///< from, bytes, address
  // Of one unit, with the address of the gate's words first.
  CudaKernel gate;
  CudaKernel gate_hold;  ///< data
  CudaKernel gate_fill;  ///< data, count, value
  CudaKernel gate_copy;  ///< from, to, count
  CudaKernel gate_sum;   ///< data, count

  [[nodiscard]] std::array<const CudaKernel*, 16> all() const {
    return {&fill,    &copy, &add_to, &plus_one, &add,       &multiply_add, &indices,   &nothing,
            &misused, &peek, &poke,   &gate,     &gate_hold, &gate_fill,    &gate_copy, &gate_sum};
  }
};

/// Those of the process.
[[nodiscard]] const CudaKernels& cuda_kernels();
/// Does not compile.
[[nodiscard]] const CudaKernel& broken_cuda_kernel();

}  // namespace cox::test
