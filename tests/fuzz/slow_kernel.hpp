#pragma once

#include <coxswain/tests/servers/contract/host_backend.hpp>

#if COX_CUDA_TESTS
#include <coxswain/tests/fake_cuda/fake_cuda.hpp>
#include <coxswain/tests/servers/contract/cuda_backend.hpp>
#endif

#include <chrono>
#include <cstdint>
#include <thread>

namespace cox::fuzz {

/// A kernel that changes nothing and takes about so many microseconds; it is given the buffer to write.
template <class Backend>
[[nodiscard]] typename Backend::Work slow(const Handle& data, std::uint32_t microseconds);

template <>
inline test::HostBackend::Work slow<test::HostBackend>(const Handle& data, std::uint32_t microseconds) {
  return {{"slow",
           {},
           1,
           [](const KernelContext& context) {
             using Clock = std::chrono::steady_clock;
             const auto end = Clock::now() + std::chrono::microseconds(context.scalar<std::uint32_t>(0));
             while (Clock::now() < end) std::this_thread::yield();
           }},
          KernelArguments{}.with_buffer(data).with_scalar(microseconds)};
}

#if COX_CUDA_TESTS
template <>
[[nodiscard]] test::CudaBackend::Work slow<test::CudaBackend>(const Handle& data, std::uint32_t microseconds);
/// The stand-in for the driver learns that kernel.
void add_slow_kernel(test::FakeCuda& fake);
#endif

}  // namespace cox::fuzz
