#pragma once

#include <coxswain/runtime/launch/cube_count.hpp>
#include <coxswain/runtime/launch/kernel_arguments.hpp>
#include <coxswain/servers/cuda/kernel/cuda_kernel.hpp>
#include <coxswain/tools/cox/stress/buffer.hpp>
#include <coxswain/tools/cox/stress/sequence.hpp>
#include <coxswain/tools/cox/stress/stress_kernels.hpp>

#include <chrono>
#include <cstdint>

namespace cox::stress {

/// The kernels for GPUs.
template <>
struct StressKernels<CudaKernel> {
  CudaKernel fill;
  CudaKernel iota;
  CudaKernel flip;
  CudaKernel axpy;
  CudaKernel stalling;

  [[nodiscard]] static const StressKernels& instance();
  [[nodiscard]] static KernelArguments arguments(const Buffer& y, std::uint32_t a) {
    return KernelArguments{}.with_buffer(y.handle).with_scalar(a).with_scalar(words_of(y));
  }
  [[nodiscard]] static KernelArguments arguments(const Buffer& y, const Buffer& x, std::uint32_t a) {
    return arguments(y, a).with_buffer(x.handle, Access::Read).with_scalar(words_of(x));
  }
  template <class Compute>
  static void stall(const Compute& client, std::chrono::milliseconds time) {
    const std::chrono::nanoseconds nanoseconds = time;
    client.launch(instance().stalling, CubeCount::single(),
                  KernelArguments{}.with_scalar(static_cast<std::uint64_t>(nanoseconds.count())));
  }
  template <class Compute>
  static void launch_failing(const Compute& client, const Buffer& y, std::uint32_t number, Sequence sequence) {
    client.launch(failing(number, sequence), CubeCount::single(), KernelArguments{}.with_buffer(y.handle));
  }

 private:
  [[nodiscard]] static std::uint32_t words_of(const Buffer& buffer) {
    return static_cast<std::uint32_t>(buffer.expected.size());
  }
  /// A kernel whose function cannot be found. A failure inside a kernel would make all GPUs of the process unusable.
  [[nodiscard]] static CudaKernel failing(std::uint32_t client, Sequence sequence);
};

}  // namespace cox::stress
