#include <coxswain/perf/cuda/raw_driver.hpp>
#include <coxswain/perf/memory/cuda/cuda_memory.hpp>

#include <coxswain/perf/cuda/open_gpu.hpp>
#include <coxswain/perf/cuda/raw_memory.hpp>
#include <coxswain/perf/harness/stopwatch.hpp>
#include <coxswain/perf/harness/suite.hpp>
#include <coxswain/perf/memory/cuda/client_memory.hpp>
#include <coxswain/perf/memory/cuda/cuda_pool.hpp>
#include <coxswain/perf/memory/cuda/raw_pool.hpp>
#include <coxswain/perf/memory/memory_cases.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>

namespace cox::perf {
namespace {

constexpr const char* in_stream_order = "cuMemAllocAsync, cuMemFreeAsync; keeps what is freed";

class CudaMemoryCases {
 public:
  CudaMemoryCases(Suite& suite, const OpenGpu& gpu, bool quick)
      : suite_(suite), gpu_(gpu), quick_(quick), capacity_(gpu.client().properties().memory.capacity) {}

  void add_pairs(std::size_t live) {
    const std::size_t most = live * 40'000;  // bytes, with room
    if (most > capacity_ / 2) return say_too_small(std::to_string(live) + " alive", most);
    const std::size_t count = quick_ ? 100'000 : 500'000;
    suite_.add({.figure = "F10",
                .name = "allocate and free on the GPU, " + std::to_string(live) + " alive",
                .metrics = {{"one size", "ns per pair"}, {"sizes of random others", "ns per pair"}},
                .contenders = {{"memory_pool",
                                [=, &gpu = gpu_] {
                                  CudaPool pool(gpu.raw(), 400);
                                  return pairs(pool, live, count);
                                },
                                "with its mapping"},
                               {"client",
                                [=, &gpu = gpu_] {
                                  ClientMemory memory(gpu);
                                  return pairs(memory, live, count);
                                },
                                "empty and drop, device thread included"},
                               {"raw_async",
                                [=, &gpu = gpu_] {
                                  RawPool pool(gpu.raw(), 1);
                                  return pairs(pool, live, count / 5);
                                },
                                in_stream_order}},
                .max_rounds = live >= 1'000'000 ? 3U : ~0U});
  }

  void add_replay(const AllocationTrace& trace) {
    if (trace.peak() > capacity_ / 10 * 8) return say_too_small(trace.name, trace.peak());
    for (const std::uint64_t lag : {0U, 400U}) {
      Case added{.figure = "F10",
                 .name = "replay on the GPU of " + trace.name +
                         (lag == 0 ? ", the device keeps up" : ", the device " + std::to_string(lag) + " frees behind"),
                 .metrics = {{"reserved", "of the peak in use"}, {"", "ns per event"}},
                 .contenders = {{"memory_pool",
                                 [=, &gpu = gpu_] {
                                   CudaPool pool(gpu.raw(), lag);
                                   return replay(trace, pool);
                                 },
                                 "with its mapping"}},
                 .max_rounds = 3};
      if (lag == 0)
        added.contenders.push_back({"raw_async",
                                    [=, &gpu = gpu_] {
                                      RawPool pool(gpu.raw(), trace.streams);
                                      return replay(trace, pool);
                                    },
                                    in_stream_order});
      suite_.add(std::move(added));
    }
  }

  void add_one_large() {
    suite_.add(
        {.figure = "F10",
         .name = "one tensor of 90 % of the GPU's free memory",
         .metrics = {{"", "ms"}},
         .contenders = {{"memory_pool", [&gpu = gpu_] { return largest_through_client(gpu); }, "client.empty, sync"},
                        {"raw", [&gpu = gpu_] { return largest_raw(gpu); }, "cuMemAlloc"},
                        {"raw_async", [&gpu = gpu_] { return largest_raw_async(gpu); }, "cuMemAllocAsync, sync"}},
         .max_rounds = 5});
  }

 private:
  void say_too_small(const std::string& what, std::size_t bytes) const {
    std::fprintf(stderr, "%s is left out: it takes %zu bytes, and the GPU has %zu\n", what.c_str(), bytes, capacity_);
  }

  static std::size_t most_of_free_memory(const OpenGpu& gpu) {
    gpu.client().memory_cleanup();
    gpu.client().flush();
    std::size_t free = 0;
    std::size_t total = 0;
    COX_RAW_TRY(memory_info(&free, &total));
    return free / 10 * 9;
  }

  static Sample largest_through_client(const OpenGpu& gpu) {
    const std::size_t bytes = most_of_free_memory(gpu);
    const Stopwatch watch;
    Handle tensor = gpu.client().empty(bytes);
    gpu.finish();  // throws if there is no such memory
    const double taken = watch.microseconds() / 1e3;
    tensor = Handle();
    gpu.client().memory_cleanup();
    gpu.client().flush();
    return {taken};
  }
  static Sample largest_raw(const OpenGpu& gpu) {
    const std::size_t bytes = most_of_free_memory(gpu);
    const Stopwatch watch;
    const RawDeviceMemory tensor(gpu.raw().context(), bytes);
    return {watch.microseconds() / 1e3};
  }
  static Sample largest_raw_async(const OpenGpu& gpu) {
    const std::size_t bytes = most_of_free_memory(gpu);
    RawPool pool(gpu.raw(), 1);
    const Stopwatch watch;
    const CUdeviceptr tensor = pool.allocate(bytes);
    pool.finish();
    const double taken = watch.microseconds() / 1e3;
    pool.free(tensor);
    return {taken};
  }

  Suite& suite_;
  const OpenGpu& gpu_;
  bool quick_;
  std::size_t capacity_;
};

}  // namespace

int measure_cuda_memory(const Options& options, const std::vector<AllocationTrace>& traces, bool everything) {
  const OpenGpu gpu;
  gpu.raw().activate();
  Suite suite(options, "memory_pool");
  CudaMemoryCases cases(suite, gpu, options.quick);
  if (everything) {
    for (const std::size_t live : {1U, 1'000U, 100'000U, 1'000'000U}) cases.add_pairs(live);
    cases.add_one_large();
  }
  for (const AllocationTrace& trace : traces) cases.add_replay(trace);
  return suite.run();
}

}  // namespace cox::perf
