#include <coxswain/tests/fuzz/slow_kernel.hpp>

#if COX_CUDA_TESTS

#include <coxswain/tests/stand_ins/kernel_functions.hpp>

#include <mutex>
#include <span>
#include <string>

namespace cox::fuzz {
namespace {

constexpr const char* name = "fuzz_slow";

CudaKernel make_kernel() {
  const std::string text = ".version 8.0";  // the stand-in does not read the code
  CudaKernelOptions options;
  options.parameters = {KernelParameter::buffer(), KernelParameter::scalar(sizeof(std::uint32_t))};
  return CudaKernel::from_image(name, CubeDim::single(), std::as_bytes(std::span(text)), std::move(options));
}

}  // namespace

template <>
test::CudaBackend::Work slow<test::CudaBackend>(const Handle& data, std::uint32_t microseconds) {
  static const CudaKernel kernel = make_kernel();
  return {kernel, KernelArguments{}.with_buffer(data).with_scalar(microseconds)};
}

void add_slow_kernel(test::FakeCuda& fake) {
  using Clock = std::chrono::steady_clock;
  const std::lock_guard lock(fake.mutex);
  fake.kernels[name] = {{test::address, test::word}, [] {
                          return [begin = Clock::time_point()](const test::FakeCuda::Run& run) mutable {
                            if (run.first_look) begin = Clock::now();
                            return Clock::now() - begin >= std::chrono::microseconds(test::number(run, 1));
                          };
                        }};
}

}  // namespace cox::fuzz

#endif
