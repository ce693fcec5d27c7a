#pragma once

#include <coxswain/runtime/launch/cube_count.hpp>
#include <coxswain/runtime/launch/kernel_arguments.hpp>
#include <coxswain/servers/host/kernel/host_kernel.hpp>
#include <coxswain/tools/cox/stress/buffer.hpp>
#include <coxswain/tools/cox/stress/sequence.hpp>
#include <coxswain/tools/cox/stress/stress_kernels.hpp>

#include <chrono>
#include <cstdint>
#include <utility>

namespace cox::stress {

/// The kernels for host devices.
template <>
struct StressKernels<HostKernel> {
  HostKernel fill;
  HostKernel iota;
  HostKernel flip;
  HostKernel axpy;

  [[nodiscard]] static const StressKernels& instance();
  [[nodiscard]] static KernelArguments arguments(const Buffer& y, std::uint32_t a) {
    return KernelArguments{}.with_buffer(y.handle).with_scalar(a);
  }
  [[nodiscard]] static KernelArguments arguments(const Buffer& y, const Buffer& x, std::uint32_t a) {
    return arguments(y, a).with_buffer(x.handle, Access::Read);
  }
  template <class Compute>
  static void stall(const Compute& client, std::chrono::milliseconds time) {
    client.launch(stalling(time), CubeCount::single(), {});
  }
  template <class Compute>
  static void launch_failing(const Compute& client, const Buffer& y, std::uint32_t number, Sequence sequence) {
    client.launch(throwing(number, sequence), CubeCount::single(), KernelArguments{}.with_buffer(y.handle));
  }

 private:
  [[nodiscard]] static HostKernel stalling(std::chrono::milliseconds time);
  [[nodiscard]] static HostKernel throwing(std::uint32_t client, Sequence sequence);
};

}  // namespace cox::stress
