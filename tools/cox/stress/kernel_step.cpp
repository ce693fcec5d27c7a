#include <coxswain/tools/cox/stress/kernel_step.hpp>

#include <coxswain/tools/cox/stress/host_kernels.hpp>

#include <algorithm>
#include <cstddef>
#include <utility>

namespace cox::stress {

KernelStep KernelStep::choose(Buffer& y, const Buffer& x, Random& random) {
  const HostKernels& kernels = HostKernels::instance();
  Words& words = y.expected;
  const auto a = static_cast<std::uint32_t>(random.next());
  KernelStep step;
  step.cubes = static_cast<std::uint32_t>((words.size() + HostKernels::units - 1) / HostKernels::units);
  step.arguments = KernelArguments{}.with_buffer(y.handle).with_scalar(a);
  switch (random.below(4)) {
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
      step.arguments = std::move(step.arguments).with_buffer(x.handle, Access::Read);
      for (std::size_t i = 0; i < std::min(x.expected.size(), words.size()); ++i) words[i] += a * x.expected[i];
      break;
  }
  return step;
}

}  // namespace cox::stress
