#include <coxswain/perf/kept/cuda/gpu_kept_steps.hpp>

#include <coxswain/perf/cuda/open_gpu.hpp>
#include <coxswain/perf/harness/stopwatch.hpp>
#include <coxswain/perf/harness/suite.hpp>
#include <coxswain/perf/kept/kept_steps.hpp>
#include <coxswain/runtime/base/byte_count.hpp>
#include <coxswain/runtime/kept/kept_set.hpp>
#include <coxswain/runtime/launch/kernel_arguments.hpp>
#include <coxswain/servers/cuda/kernel/cuda_kernel.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>

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

// Steps of a program with state on a GPU: each writes all of it by one kernel. The state is made once: under `cox run`
// its memory is held until the process ends.
class GpuSteps {
 public:
  GpuSteps(const OpenGpu& gpu, CudaKernel fill, std::size_t bytes, const StepOptions& options)
      : client_(gpu.client()), fill_(std::move(fill)), bytes_(bytes) {
    if (options.kept) {
      static unsigned sets = 0;
      set_.emplace("perf " + std::to_string(sets++), std::vector{client_.device_id()},
                   KeptOptions{.mode = options.mode, .checksum_every = options.checksum_every});
      static_cast<void>(client_.kept(*set_, "state", bytes));
    } else {
      plain_ = client_.memory_persistent_allocation([&] { return client_.empty(bytes); });
    }
  }

  // us of one step, until the GPU has made the last one.
  [[nodiscard]] Sample time(std::size_t steps) {
    for (std::size_t i = 0; i < steps_between_syncs; ++i) step();
    client_.sync().get();
    const Stopwatch watch;
    for (std::size_t i = 0; i < steps; ++i) step();
    client_.sync().get();
    return {watch.microseconds() / static_cast<double>(steps)};
  }

 private:
  static constexpr std::size_t steps_between_syncs = 64;  // the supervisor holds the values of more commits

  void step() {
    ++number_;
    if (set_) client_.begin_update(*set_);
    const std::uint64_t words = bytes_ / sizeof(std::uint64_t);
    const auto blocks = static_cast<std::uint32_t>(std::min<std::uint64_t>(words / threads + 1, most_blocks));
    client_.launch(fill_, CubeCount::of_1d(blocks),
                   KernelArguments()
                       .with_buffer(set_ ? client_.kept_next(*set_, "state") : *plain_, Access::Overwrite)
                       .with_scalar(words)
                       .with_scalar(number_));
    const std::array<std::uint64_t, 8> values{number_};
    if (set_) client_.commit(*set_, std::as_bytes(std::span(values)));
    if (number_ % steps_between_syncs == 0) client_.sync().get();
  }

  const CudaClient& client_;
  CudaKernel fill_;
  std::size_t bytes_;
  std::optional<KeptSet> set_;
  std::optional<Handle> plain_;
  std::uint64_t number_ = 0;
};

}  // namespace

int measure_gpu_kept(const Options& options, const std::vector<std::size_t>& sizes) {
  const OpenGpu gpu;
  const CudaKernel fill = CudaKernel::from_source("fill_words", CubeDim::of_1d(threads), source);
  Suite suite(options, "kept");
  for (const std::size_t bytes : sizes) {
    // About a fifth of a second, if the GPU writes 2 TB/s and a launch takes 5 us.
    const std::size_t steps = 200'000 / (5 + bytes / 2'000'000) / (options.quick ? 10 : 1) + 1;
    const auto with = [&, bytes, steps](const StepOptions& how) {
      return [&gpu, &fill, bytes, steps, how, made = std::shared_ptr<GpuSteps>()]() mutable {
        if (!made) made = std::make_shared<GpuSteps>(gpu, fill, bytes, how);
        return made->time(steps);
      };
    };
    suite.add({.figure = "F23",
               .name = "a step that writes " + exact_byte_count(bytes) + " of state on a GPU",
               .metrics = {{"", "us per step"}},
               .contenders = {{"kept", with({.kept = true}), "in place"},
                              {"plain", with({}), "not kept"},
                              {"two_copies", with({.kept = true, .mode = KeptMode::Double})},
                              {"checksums", with({.kept = true, .checksum_every = 1}), "of each commit"},
                              {"checksums_of_64th", with({.kept = true, .checksum_every = 64})}},
               .minus = "plain"});
  }
  return suite.run();
}

}  // namespace cox::perf
