#pragma once

#include <coxswain/runtime/kernel_arguments.hpp>
#include <coxswain/servers/host/host_kernel.hpp>
#include <coxswain/tools/cox/stress/buffer.hpp>
#include <coxswain/tools/cox/stress/random.hpp>

#include <cstdint>

namespace cox::stress {

/// A kernel ready to be launched.
struct KernelStep {
  const HostKernel* kernel = nullptr;
  KernelArguments arguments;
  std::uint32_t cubes = 0;  ///< One-dimensional.

  /// One that changes `y` and may read `x`, which may be the same; does to y.expected on the CPU what it will do to the
  /// buffer.
  [[nodiscard]] static KernelStep choose(Buffer& y, const Buffer& x, Random& random);
};

}  // namespace cox::stress
