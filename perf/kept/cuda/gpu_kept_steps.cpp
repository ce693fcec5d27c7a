#include <coxswain/perf/kept/cuda/gpu_kept_steps.hpp>

#include <coxswain/perf/collective/cuda/gpu_ranks.hpp>
#include <coxswain/perf/harness/suite.hpp>
#include <coxswain/perf/kept/kept_steps.hpp>
#include <coxswain/runtime/base/byte_count.hpp>
#include <coxswain/runtime/launch/kernel_arguments.hpp>
#include <coxswain/servers/cuda/device/cuda_devices.hpp>
#include <coxswain/servers/cuda/kernel/cuda_kernel.hpp>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>

namespace cox::perf {
namespace {

constexpr unsigned threads = 256;
constexpr unsigned most_blocks = 2048;

constexpr const char* source = R"(
typedef unsigned long long u64;
extern "C" __global__ void fill_words(u64* words, u64 count, u64 value) {
  u64 step = (u64)gridDim.x * blockDim.x;
  for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) words[i] = value;
}
)";

}  // namespace

// The state of a contender is made once: under `cox run` its memory is held until the process ends.
int measure_gpu_kept(const Options& options, const std::vector<std::size_t>& sizes) {
  const GpuRanks gpus(std::min<std::size_t>(enumerate_cuda_devices().size(), 2));
  const CudaKernel fill = CudaKernel::from_source("fill_words", CubeDim::of_1d(threads), source);
  Suite suite(options, "kept");
  for (const std::size_t bytes : sizes) {
    // About a fifth of a second, if a GPU writes 2 TB/s and a launch takes 5 us.
    const std::size_t steps = 200'000 / (5 + bytes / 2'000'000) / (options.quick ? 10 : 1) + 1;
    const auto write = [&fill, words = std::uint64_t{bytes / sizeof(std::uint64_t)}](
                           const CudaClient& client, const Handle& state, std::uint64_t value) {
      const auto blocks = static_cast<std::uint32_t>(std::min<std::uint64_t>(words / threads + 1, most_blocks));
      client.launch(fill, CubeCount::of_1d(blocks),
                    KernelArguments().with_buffer(state, Access::Overwrite).with_scalar(words).with_scalar(value));
    };
    const auto with = [=, &gpus](std::size_t count, const StepOptions& how) {
      return [=, &gpus, made = std::shared_ptr<KeptSteps<CudaClient>>()]() mutable {
        if (!made)
          made = std::make_shared<KeptSteps<CudaClient>>(std::span(gpus.clients).first(count), write, bytes, how);
        // Where begin_update waits, a step on two GPUs takes several times as long.
        return Sample{made->nanoseconds_of_step(steps / (count * count) + 1) / 1000};
      };
    };
    add_kept_cases(suite, exact_byte_count(bytes), "us", gpus.clients.size() == 2, with);
  }
  return suite.run();
}

}  // namespace cox::perf
