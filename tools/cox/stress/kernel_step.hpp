#pragma once

#include <coxswain/runtime/launch/kernel_arguments.hpp>
#include <coxswain/tools/cox/stress/buffer.hpp>
#include <coxswain/tools/cox/stress/random.hpp>
#include <coxswain/tools/cox/stress/stress_kernels.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace cox::stress {

/// A kernel ready to be launched.
template <class Kernel>
struct KernelStep {
  const Kernel* kernel = nullptr;
  KernelArguments arguments;
  std::uint32_t cubes = 0;  ///< One-dimensional.

  /// Chooses a kernel that changes `y` and may read `x`, which may be the same buffer. Applies the change of the kernel
  /// to y.expected on the CPU.
  [[nodiscard]] static KernelStep choose(Buffer& y, const Buffer& x, Random& random) {
    using Kernels = StressKernels<Kernel>;
    const Kernels& kernels = Kernels::instance();
    Words& words = y.expected;
    const auto a = static_cast<std::uint32_t>(random.next());
    KernelStep step;
    step.cubes = cubes_for(words.size());
    const std::uint64_t which = random.below(4);
    step.arguments = which == 3 ? Kernels::arguments(y, x, a) : Kernels::arguments(y, a);
    switch (which) {
      case 0:
        step.kernel = &kernels.fill;
        std::fill(words.begin(), words.end(), a);
        break;
      case 1:
        step.kernel = &kernels.iota;
        for (std::size_t i = 0; i < words.size(); ++i) words[i] = a + static_cast<std::uint32_t>(i);
        break;
      case 2:
        step.kernel = &kernels.flip;
        for (std::uint32_t& word : words) word ^= a;
        break;
      default:
        step.kernel = &kernels.axpy;
        for (std::size_t i = 0; i < std::min(x.expected.size(), words.size()); ++i) words[i] += a * x.expected[i];
        break;
    }
    return step;
  }

  [[nodiscard]] static std::uint32_t cubes_for(std::size_t words) {
    return static_cast<std::uint32_t>((words + kernel_units - 1) / kernel_units);
  }
};

}  // namespace cox::stress
