#pragma once

#include <coxswain/device_handle/base/shutdown.hpp>
#include <coxswain/servers/cuda/server/cuda_server.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <cstdint>
#include <string>
#include <vector>

/// Ends the test, saying so, where there is no GPU.
#define COX_REQUIRE_GPUS(count)                                                                             \
  if (const auto cox_gpus = cox::enumerate_cuda_devices(); cox_gpus.size() < (count)) {                     \
    WARN("skipped: needs " << (count) << " GPUs, found " << cox_gpus.size() << ". " << cox::why_no_cuda()); \
    return;                                                                                                 \
  }

namespace cox::test {

/// A GPU that is open for one test.
class OpenCuda {
 public:
  explicit OpenCuda(std::uint16_t index = 0)
      : device_{.type = cuda_device_type, .index = index}, client_(CudaClient::load(device_)) {}
  OpenCuda(const OpenCuda&) = delete;
  OpenCuda& operator=(const OpenCuda&) = delete;
  ~OpenCuda() { shutdown(device_); }

  [[nodiscard]] CudaClient& client() noexcept { return client_; }
  [[nodiscard]] DeviceId device() const noexcept { return device_; }
  /// A client of the same device on a stream of its own.
  [[nodiscard]] CudaClient on_new_stream() const {
    CudaClient other = client_;
    other.set_stream(StreamId::allocate());
    return other;
  }

 private:
  DeviceId device_;
  CudaClient client_;
};

/// Element i of the first buffer becomes `factor` times itself plus `summand`.
inline CudaKernel multiply_add() {
  return CudaKernel::from_source("multiply_add", CubeDim::of_1d(256), R"(
    extern "C" __global__ void multiply_add(unsigned* data, unsigned count, unsigned factor, unsigned summand) {
      const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
      if (i < count) data[i] = data[i] * factor + summand;
    })",
                                 {.parameters = {{KernelParameter::buffer(), KernelParameter::scalar(4),
                                                  KernelParameter::scalar(4), KernelParameter::scalar(4)}}});
}

/// Keeps the stream busy for about so many microseconds, then adds 1 to every element.
inline CudaKernel slow_increment() {
  return CudaKernel::from_source("slow_increment", CubeDim::of_1d(256), R"(
    extern "C" __global__ void slow_increment(unsigned* data, unsigned count, unsigned microseconds) {
      const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
      unsigned long long begin, now;
      asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
      do asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)); while (now - begin < microseconds * 1000ull);
      if (i < count) data[i] += 1;
    })");
}

[[nodiscard]] inline std::vector<std::uint32_t> counting(std::size_t count, std::uint32_t begin = 0) {
  std::vector<std::uint32_t> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = begin + static_cast<std::uint32_t>(i);
  return values;
}
[[nodiscard]] inline CubeCount cubes_for(std::size_t count) {
  return CubeCount::of_1d(static_cast<std::uint32_t>((count + 255) / 256));
}
inline void multiply_add(const CudaClient& client, const Handle& data, std::uint32_t factor, std::uint32_t summand) {
  static const CudaKernel kernel = multiply_add();
  const auto count = static_cast<std::uint32_t>(data.size_in_used() / sizeof(std::uint32_t));
  client.launch(kernel, cubes_for(count),
                KernelArguments().with_buffer(data).with_scalar(count).with_scalar(factor).with_scalar(summand));
}
inline void slow_increment(const CudaClient& client, const Handle& data, std::uint32_t microseconds) {
  static const CudaKernel kernel = slow_increment();
  const auto count = static_cast<std::uint32_t>(data.size_in_used() / sizeof(std::uint32_t));
  client.launch(kernel, cubes_for(count),
                KernelArguments().with_buffer(data).with_scalar(count).with_scalar(microseconds));
}
[[nodiscard]] inline std::vector<std::uint32_t> numbers(const Bytes& bytes) { return bytes.to_vector<std::uint32_t>(); }

}  // namespace cox::test
