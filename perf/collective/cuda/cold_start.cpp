#include <coxswain/perf/collective/cuda/cold_start.hpp>

#include <coxswain/collectives/nccl/nccl.hpp>
#include <coxswain/perf/collective/cuda/gpu_ranks.hpp>
#include <coxswain/perf/collective/thread_team.hpp>
#include <coxswain/perf/cuda/raw_nccl.hpp>
#include <coxswain/perf/harness/fresh_process.hpp>
#include <coxswain/perf/harness/suite.hpp>
#include <coxswain/runtime/config/process_settings.hpp>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace cox::perf {
namespace {

constexpr std::size_t small = 64;  // bytes
constexpr std::size_t large = std::size_t{32} << 20U;

/// Names the cache of compiled kernels that a process fills for another one.
constexpr const char* cache_variable = "COX_PERF_KERNEL_CACHE";

using Clock = std::chrono::steady_clock;

double milliseconds_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

/// A cache of compiled kernels that is empty at first: that of cache_variable, or a new one.
class KernelCacheFolder {
 public:
  KernelCacheFolder() {
    if (const char* const given = std::getenv(cache_variable); given != nullptr) {
      path_ = given;
    } else {
      std::string name = (std::filesystem::temp_directory_path() / "cox-perf-XXXXXX").string();
      if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("cannot create a folder like " + name);
      path_ = name;
      is_ours_ = true;
    }
    set_settings({{"compilation.cache", true}, {"compilation.cache_folder", path_.string()}});
  }
  KernelCacheFolder(const KernelCacheFolder&) = delete;
  KernelCacheFolder& operator=(const KernelCacheFolder&) = delete;
  ~KernelCacheFolder() {
    std::error_code ignored;
    if (is_ours_) std::filesystem::remove_all(path_, ignored);
  }
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

 private:
  std::filesystem::path path_;
  bool is_ours_ = false;
};

/// From the first call on an open device until all ranks have the result.
double first_all_reduce(const GpuRanks& gpus, ElementType type, std::size_t bytes) {
  std::vector<Handle> buffers;
  for (const CudaClient& client : gpus.clients) buffers.push_back(client.create(Bytes::zeroed(bytes)));
  for (const CudaClient& client : gpus.clients) client.sync().get();
  const auto begin = Clock::now();
  for (std::size_t rank = 0; rank < buffers.size(); ++rank)
    gpus.clients[rank].all_reduce(buffers[rank], buffers[rank], type, gpus.devices);
  for (const CudaClient& client : gpus.clients) {
    client.sync_collective();
    client.sync().get();
  }
  return milliseconds_since(begin);
}

/// The first all_reduce of the process, and the next one.
Sample of_process(std::size_t ranks, ElementType type, std::size_t bytes) {
  const KernelCacheFolder cache;
  const auto begin = Clock::now();
  const GpuRanks gpus(ranks);
  for (const CudaClient& client : gpus.clients) client.sync().get();
  const double opening = milliseconds_since(begin);
  const double first = first_all_reduce(gpus, type, bytes);
  return {first, first_all_reduce(gpus, type, bytes), opening};
}

/// The same after another process has filled the cache of compiled kernels. `fill`: the arguments of that process.
Sample of_next_process(std::size_t ranks, ElementType type, const std::vector<std::string>& fill) {
  const KernelCacheFolder cache;
  if (setenv(cache_variable, cache.path().c_str(), 1) != 0) throw std::runtime_error("cannot set a variable");
  static_cast<void>(numbers_from_fresh_process(fill));
  return of_process(ranks, type, small);
}

/// NCCL alone, of which the library is opened before.
struct NcclStart {
  double opening = 0;   ///< of the devices
  double creation = 0;  ///< of the communicators, and of buffers
  double first = 0;     ///< all_reduce
  double next = 0;
};
NcclStart start_nccl(std::size_t ranks, std::size_t bytes) {
  NcclStart took;
  auto begin = Clock::now();
  const GpuRanks gpus(ranks);
  for (const CudaClient& client : gpus.clients) client.sync().get();
  took.opening = milliseconds_since(begin);
  static_cast<void>(detail::nccl());
  begin = Clock::now();
  const RawNccl raw(ranks, bytes);
  took.creation = milliseconds_since(begin);
  ThreadTeam team(ranks);
  team([&](std::size_t rank) { raw.activate(rank); });
  for (double* const taken : {&took.first, &took.next}) {
    begin = Clock::now();
    team([&](std::size_t rank) {
      raw.all_reduce(rank, bytes, true);
      raw.synchronize(rank);
    });
    *taken = milliseconds_since(begin);
  }
  return took;
}

Sample of_nccl(std::size_t ranks, std::size_t bytes) {
  const NcclStart took = start_nccl(ranks, bytes);
  return {took.creation + took.first, took.next, took.opening};
}

Sample of_nccl_creation(std::size_t ranks, std::size_t bytes) {
  const NcclStart took = start_nccl(ranks, bytes);
  return {took.creation, took.first, took.opening};
}

}  // namespace

int measure_cold_starts(Options options, std::size_t ranks) {
  options.own_arguments = {"--cuda", "--cold", "--gpus", std::to_string(ranks)};
  const std::string figure = "F19";
  const std::string first_small = "first all_reduce of 64 B in a process";
  const std::string embedded = "f32: its kernels are in the library if it was built with nvcc; F19: at most 150 ms";
  std::vector<std::string> fill{"--sample", figure + ' ' + first_small, "compiled"};
  fill.insert(fill.end(), options.own_arguments.begin(), options.own_arguments.end());
  const std::vector<Metric> metrics{{"call to result", "ms"}, {"the next one", "ms"}, {"opening the devices", "ms"}};
  Suite suite(std::move(options), "coxswain");
  suite.add({.figure = figure,
             .name = first_small,
             .metrics = metrics,
             .contenders = {{"coxswain", [=] { return of_process(ranks, ElementType::F32, small); }, embedded},
                            {"compiled", [=] { return of_process(ranks, ElementType::I32, small); },
                             "i32, which NVRTC compiles: the cache of compiled kernels is empty"},
                            {"cached", [=] { return of_next_process(ranks, ElementType::I32, fill); },
                             "i32, compiled by a process before"}},
             .fresh_process = true});
  suite.add({.figure = figure,
             .name = "first all_reduce of 32 MiB in a process",
             .metrics = metrics,
             .contenders = {{"coxswain", [=] { return of_process(ranks, ElementType::F32, large); },
                             "the library of NCCL is opened and its communicators are created for it"},
                            {"nccl", [=] { return of_nccl(ranks, large); },
                             "buffers, ncclCommInitAll, the first ncclAllReduce; F19: ours at most 150 ms more"},
                            {"nccl_creation", [=] { return of_nccl_creation(ranks, large); },
                             "the same without the ncclAllReduce, which is shown as the next one"}},
             .fresh_process = true,
             .minus = "nccl"});
  return suite.run();
}

}  // namespace cox::perf
