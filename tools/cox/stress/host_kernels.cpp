#include <coxswain/tools/cox/stress/host_kernels.hpp>

#include <coxswain/tools/cox/stress/injected_fault.hpp>

#include <cstddef>
#include <thread>

namespace cox::stress {
namespace {

using Word = std::uint32_t;

// f(word, index, scalar) for each word of the first buffer that this cube has a unit for.
template <class F>
HostKernel elementwise(const char* name, F f) {
  return {name, CubeDim::of_1d(kernel_units), 1, [f](const KernelContext& context) {
            const BufferView<Word> y = context.buffer<Word>(0);
            const auto a = context.scalar<Word>(0);
            context.for_each_unit([&](std::uint64_t unit) {
              if (unit < y.size()) f(y[static_cast<std::size_t>(unit)], static_cast<Word>(unit), a);
            });
          }};
}

void run_axpy(const KernelContext& context) {
  const BufferView<Word> y = context.buffer<Word>(0);
  const BufferView<const Word> x = context.buffer<const Word>(1);
  const auto a = context.scalar<Word>(0);
  context.for_each_unit([&](std::uint64_t unit) {
    const auto i = static_cast<std::size_t>(unit);
    if (i < y.size() && i < x.size()) y[i] += a * x[i];
  });
}

}  // namespace

const StressKernels<HostKernel>& StressKernels<HostKernel>::instance() {
  static const StressKernels kernels{
      .fill = elementwise("fill", [](Word& y, Word, Word a) { y = a; }),
      .iota = elementwise("iota", [](Word& y, Word i, Word a) { y = a + i; }),
      .flip = elementwise("flip", [](Word& y, Word, Word a) { y ^= a; }),
      .axpy = HostKernel("axpy", CubeDim::of_1d(kernel_units), 2, run_axpy),
  };
  return kernels;
}

HostKernel StressKernels<HostKernel>::stalling(std::chrono::milliseconds time) {
  return {"stalling", CubeDim::single(), 0, [time](const KernelContext&) { std::this_thread::sleep_for(time); }};
}

HostKernel StressKernels<HostKernel>::throwing(std::uint32_t client, Sequence sequence) {
  return {"throwing", CubeDim::single(), 1,
          [client, sequence](const KernelContext&) { throw InjectedFault(client, sequence); }};
}

}  // namespace cox::stress
