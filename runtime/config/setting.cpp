#include <coxswain/runtime/config/setting.hpp>

#include <coxswain/runtime/config/config_error.hpp>

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

namespace cox {
namespace {

using Type = SettingType;

constexpr std::uint64_t second = 1'000'000'000;  // ns
constexpr std::uint64_t day = 86'400 * second;
constexpr std::uint64_t any_size = std::numeric_limits<std::size_t>::max();

constexpr Setting log_level_of(std::string_view key, std::string_view environment, std::string_view documentation) {
  return {key, environment, Type::LogLevel, 0, 0, "", "log.level", documentation};
}

constexpr std::array settings_table{
    Setting{"host.devices", "COX_HOST_DEVICES", Type::Count, 1, 65'535, "4", "", "how many host devices there are"},
    Setting{"host.threads", "COX_HOST_THREADS", Type::Count, 1, 1024, "2", "",
            "threads of each host device that run stream work"},
    Setting{"host.memory", "COX_HOST_MEMORY", Type::ByteSize, 1, any_size, "1GiB", "", "memory of each host device"},
    Setting{"host.pinned_memory", "COX_HOST_PINNED_MEMORY", Type::ByteSize, 1, any_size, "256MiB", "",
            "memory of each host device for staging"},
    Setting{"cuda.memory", "COX_CUDA_MEMORY", Type::ByteSize, 0, any_size, "0B", "",
            "memory that may be allocated on each CUDA device; 0B: all of it"},
    Setting{"cuda.mapped_memory", "COX_CUDA_MAPPED_MEMORY", Type::Boolean, 0, 0, "true", "",
            "map memory of CUDA devices piece by piece where the driver supports that; false: plain allocations"},
    Setting{"cuda.pinned_memory", "COX_CUDA_PINNED_MEMORY", Type::ByteSize, 1 << 20, any_size, "1GiB", "",
            "page-locked host memory of each CUDA device for staging; large reads have the same amount in addition"},
    Setting{"cuda.streams", "COX_CUDA_STREAMS", Type::Count, 1, 1024, "16", "",
            "driver streams of each CUDA device, which all StreamIds share; the first 16 launch successive kernels "
            "together"},
    Setting{"cuda.launches_in_flight", "COX_CUDA_LAUNCHES_IN_FLIGHT", Type::Count, 16, 960, "512", "",
            "operations that may be in flight on one driver stream of a CUDA device"},
    Setting{"cuda.launches_at_a_time", "COX_CUDA_LAUNCHES_AT_A_TIME", Type::Count, 1, 16, "16", "",
            "largest number of successive kernels that are launched together, as one CUDA graph; 1: each kernel is "
            "launched alone"},
    Setting{"cuda.copy_threads", "COX_CUDA_COPY_THREADS", Type::Count, 1, 64, "8", "",
            "threads of each CUDA device that copy to and from pageable memory"},
    Setting{"cuda.device_thread_spin", "COX_CUDA_DEVICE_THREAD_SPIN", Type::Duration, 0, second, "50ms", "",
            "how long the idle device thread of a CUDA device, or a thread of the connections of a world with CUDA "
            "devices, polls before it sleeps, if longer than device_thread.spin"},
    Setting{"cuda.driver", "COX_CUDA_DRIVER", Type::Text, 0, 0, "", "",
            "file of the CUDA driver's library; empty: libcuda.so.1 from the loader's search path"},
    Setting{"cuda.nvml", "COX_CUDA_NVML", Type::Text, 0, 0, "", "",
            "file of the NVML library, which reports memory errors; empty: libnvidia-ml.so.1 from the loader's search "
            "path"},
    Setting{"device_thread.queue_capacity", "COX_DEVICE_THREAD_QUEUE_CAPACITY", Type::Count, 1, 1ULL << 32U, "16384",
            "", "largest number of queued closures; enforced under the policies block and fail"},
    Setting{"device_thread.queue_policy", "COX_DEVICE_THREAD_QUEUE_POLICY", Type::QueuePolicy, 0, 0, "grow", "",
            "what a submit to a full queue does"},
    Setting{"device_thread.spin", "COX_DEVICE_THREAD_SPIN", Type::Duration, 0, second, "250us", "",
            "how long an idle device thread, a caller that waits for it, or a thread of a world's connections polls "
            "before it sleeps"},
    Setting{"device_thread.stall_threshold", "COX_DEVICE_THREAD_STALL_THRESHOLD", Type::Duration, 0, day, "10s", "",
            "a task that runs longer is reported; 0s: none is"},
    Setting{"device_thread.histograms", "COX_DEVICE_THREAD_HISTOGRAMS", Type::Boolean, 0, 0, "true", "",
            "keep histograms of queue wait and run time"},
    Setting{
        "collectives.timeout", "COX_COLLECTIVES_TIMEOUT", Type::Duration, 1'000'000, day, "10min", "",
        "how long a rank that has submitted a collective, or whose stream has reached it, waits for the other ranks"},
    Setting{"collectives.explain_after", "COX_COLLECTIVES_EXPLAIN_AFTER", Type::Duration, 0, day, "1s", "",
            "after this time a thread's wait for a collective with missing ranks is explained, in the log and on "
            "standard error; 0s: never"},
    Setting{"collectives.max_ahead", "COX_COLLECTIVES_MAX_AHEAD", Type::Count, 1, 1ULL << 32U, "1024", "",
            "collectives that a rank may be ahead of the slowest rank of its communicator"},
    Setting{"collectives.recorded", "COX_COLLECTIVES_RECORDED", Type::Count, 1, 1ULL << 24U, "1024", "",
            "collectives that the flight recorder of each communicator keeps"},
    Setting{"collectives.dump_file", "COX_COLLECTIVES_DUMP_FILE", Type::Text, 0, 0, "", "",
            "write the flight recorders to this file when a collective fails; replaced by the next failure"},
    Setting{"collectives.peer_memory", "COX_COLLECTIVES_PEER_MEMORY", Type::Boolean, 0, 0, "true", "",
            "do small collectives, and reductions that NCCL does not support, by kernels that access the other GPUs' "
            "memory; false: by NCCL"},
    Setting{
        "collectives.reproducible", "COX_COLLECTIVES_REPRODUCIBLE", Type::Boolean, 0, 0, "false", "",
        "reduce floating-point elements in the order of ranks, so that a result does not depend on size, grouping or "
        "algorithm; refuse what only NCCL can reduce"},
    Setting{"collectives.nccl", "COX_COLLECTIVES_NCCL", Type::Text, 0, 0, "", "",
            "file of the NCCL library; empty: searched for"},
    Setting{"collectives.nccl_ctas", "COX_COLLECTIVES_NCCL_CTAS", Type::Count, 0, 64, "0", "",
            "CTAs of NCCL's kernels (its minCTAs and maxCTAs); 0: 32 between two GPUs of compute capability 9.0 that "
            "are connected "
            "by NVLink, else as many as NCCL chooses"},
    Setting{"collectives.nvlink_multicast", "COX_COLLECTIVES_NVLINK_MULTICAST", Type::Boolean, 0, 0, "false", "",
            "let NCCL use NVLink multicast (NVLS); false: unless NCCL_NVLS_ENABLE says so"},
    Setting{"world.timeout", "COX_WORLD_TIMEOUT", Type::Duration, 1'000'000, day, "5min", "",
            "how long a process waits for the other processes of its world when the world starts"},
    Setting{"world.heartbeat", "COX_WORLD_HEARTBEAT", Type::Duration, 1'000'000, 60 * second, "1s", "",
            "how often each process of a world and its leader send each other a sign of life"},
    Setting{
        "world.silence", "COX_WORLD_SILENCE", Type::Duration, 1'000'000, day, "30s", "",
        "how long a process that others wait for may be silent before it is taken for dead, and a connection for data "
        "before it is taken for broken"},
    Setting{"world.pmix", "COX_WORLD_PMIX", Type::Text, 0, 0, "", "",
            "file of the PMIx library; empty: libpmix.so.2 from the loader's search path"},
    Setting{"log.level", "COX_LOG_LEVEL", Type::LogLevel, 0, 0, "warn", "",
            "lowest level that is logged; the log runs if any log.* is set"},
    log_level_of("log.device_handle", "COX_LOG_DEVICE_HANDLE", "level of the device threads' messages"),
    log_level_of("log.runtime", "COX_LOG_RUNTIME", "level of the runtime's messages"),
    log_level_of("log.memory", "COX_LOG_MEMORY", "level of the memory pools' messages"),
    log_level_of("log.host", "COX_LOG_HOST", "level of the host server's messages"),
    log_level_of("log.cuda", "COX_LOG_CUDA", "level of the CUDA server's messages"),
    log_level_of("log.collectives", "COX_LOG_COLLECTIVES", "level of the communicators' messages"),
    Setting{"log.stderr", "COX_LOG_STDERR", Type::Boolean, 0, 0, "true", "", "log to the standard error stream"},
    Setting{"log.file", "COX_LOG_FILE", Type::Text, 0, 0, "", "", "also log to this file, by appending to it"},
    Setting{"log.queue_capacity", "COX_LOG_QUEUE_CAPACITY", Type::Count, 1, 1'048'576, "8192", "",
            "largest number of messages queued for the log's thread; beyond it the oldest are dropped"},
    Setting{"profiling.level", "COX_PROFILING_LEVEL", Type::ProfileLevel, 0, 0, "disabled", "",
            "what is recorded of launches; it is logged by log.runtime at level info"},
    Setting{"compilation.check_mode", "COX_COMPILATION_CHECK_MODE", Type::CheckMode, 0, 0, "auto", "",
            "mode of host kernels that are launched unchecked: checked, validated, or unchecked"},
    Setting{"compilation.nvrtc", "COX_COMPILATION_NVRTC", Type::Text, 0, 0, "", "",
            "file of the NVRTC library; empty: searched for"},
    Setting{"compilation.cache", "COX_COMPILATION_CACHE", Type::Boolean, 0, 0, "true", "",
            "keep compiled kernels on disk"},
    Setting{"compilation.cache_folder", "COX_COMPILATION_CACHE_FOLDER", Type::Text, 0, 0, "", "",
            "folder of the compiled kernels; empty: coxswain/kernels in $XDG_CACHE_HOME or ~/.cache"},
    Setting{"trace.file", "COX_TRACE_FILE", Type::Text, 0, 0, "", "",
            "trace from the start and write the trace to this file when the process ends"},
    Setting{"trace.capacity", "COX_TRACE_CAPACITY", Type::Count, 1024, 1ULL << 26U, "65536", "",
            "largest number of events in a trace; beyond it the oldest are dropped"},
    Setting{"trace.nvtx", "COX_TRACE_NVTX", Type::Boolean, 0, 0, "false", "",
            "also record tasks and stream work as NVTX ranges, from the start"},
};

// A wrong or missing section counts as two letters: "devices" is close to "host.devices".
std::size_t distance(std::string_view key, std::string_view known) {
  const auto last = [](std::string_view dotted) { return dotted.substr(dotted.rfind('.') + 1); };
  return std::min(detail::edit_distance(key, known), 2 + detail::edit_distance(last(key), last(known)));
}

}  // namespace

std::span<const Setting> known_settings() noexcept { return settings_table; }

const Setting& find_setting(std::string_view key) {
  const auto* const found = std::ranges::find(settings_table, key, &Setting::key);
  if (found != settings_table.end()) return *found;
  throw ConfigError(ConfigError::Kind::UnknownKey,
                    "there is no setting " + std::string(key) + "; the nearest is " + std::string(nearest_key(key)));
}

std::string_view nearest_key(std::string_view key) {
  return std::ranges::min_element(settings_table, {}, [&](const Setting& known) { return distance(key, known.key); })
      ->key;
}

std::size_t detail::edit_distance(std::string_view from, std::string_view to) {
  std::vector<std::size_t> row(to.size() + 1);  // distances of the current prefix of `from` to each prefix of `to`
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < from.size(); ++i) {
    std::size_t diagonal = row[0]++;
    for (std::size_t j = 0; j < to.size(); ++j) {
      const std::size_t changed = diagonal + (from[i] == to[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({changed, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

}  // namespace cox
