#if COX_HAS_CUDA

#include <coxswain/tools/cox/stress/cuda_kernels.hpp>

#include <coxswain/runtime/error/launch_error.hpp>
#include <coxswain/tools/cox/stress/injected_fault.hpp>

#include <exception>
#include <string>

namespace cox::stress {
namespace {

using Kernels = StressKernels<CudaKernel>;

constexpr const char* source = R"(
using Word = unsigned;
__device__ Word unit() { return blockIdx.x * blockDim.x + threadIdx.x; }

extern "C" __global__ void fill(Word* y, Word a, Word count) {
  if (unit() < count) y[unit()] = a;
}
extern "C" __global__ void iota(Word* y, Word a, Word count) {
  if (unit() < count) y[unit()] = a + unit();
}
extern "C" __global__ void flip(Word* y, Word a, Word count) {
  if (unit() < count) y[unit()] ^= a;
}
extern "C" __global__ void axpy(Word* y, const Word* x, Word a, Word count, Word x_count) {
  if (unit() < count && unit() < x_count) y[unit()] += a * x[unit()];
}
extern "C" __global__ void stalling(unsigned long long nanoseconds) {
  unsigned long long begin, now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
  do asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  while (now - begin < nanoseconds);
}
)";

CudaKernel kernel(const char* name, std::uint32_t units = kernel_units) {
  return CudaKernel::from_source(name, CubeDim::of_1d(units), source);
}

}  // namespace

const Kernels& Kernels::instance() {
  static const Kernels kernels{.fill = kernel("fill"),
                               .iota = kernel("iota"),
                               .flip = kernel("flip"),
                               .axpy = kernel("axpy"),
                               .stalling = kernel("stalling", 1)};
  return kernels;
}

CudaKernel Kernels::failing(std::uint32_t client, Sequence sequence) {
  return CudaKernel::from_function("failing", CubeDim::single(), [client, sequence]() -> void* {
    const InjectedFault fault(client, sequence);
    throw LaunchError(LaunchError::Kind::KernelFailed, std::string("kernel 'failing' failed: ") + fault.what(),
                      std::source_location::current(), std::make_exception_ptr(fault));
  });
}

}  // namespace cox::stress

#endif
