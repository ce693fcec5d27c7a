#include <coxswain/servers/cuda/kernel/cuda_launch.hpp>

#include <coxswain/runtime/error/launch_error.hpp>
#include <coxswain/runtime/launch/launch_limits.hpp>
#include <coxswain/servers/cuda/driver/cuda_try.hpp>
#include <coxswain/servers/cuda/driver/fault_report.hpp>
#include <coxswain/servers/cuda/stream/cuda_streams.hpp>
#include <coxswain/servers/cuda/stream/poison_log.hpp>

#include <array>
#include <exception>

namespace cox::detail {
namespace {

using Attributes = std::array<CUlaunchAttribute, 3>;

unsigned fill(Attributes& attributes, const CudaKernelOptions& options) {
  unsigned count = 0;
  if (options.cluster_dim[0] != 0) {
    CUlaunchAttribute& attribute = attributes[count++];
    attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    attribute.value.clusterDim.x = options.cluster_dim[0];
    attribute.value.clusterDim.y = options.cluster_dim[1];
    attribute.value.clusterDim.z = options.cluster_dim[2];
  }
  if (options.cooperative) {
    CUlaunchAttribute& attribute = attributes[count++];
    attribute.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
    attribute.value.cooperative = 1;
  }
  if (options.programmatic_launch) {
    CUlaunchAttribute& attribute = attributes[count++];
    attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    attribute.value.programmaticStreamSerializationAllowed = 1;
  }
  return count;
}

[[noreturn]] void throw_launch_error(CUresult result, const Location& location, const char* name,
                                     std::source_location site) {
  if (is_sticky(result)) {
    report_gpu_fault(result, "launch");
    throw_gpu_fault(site);
  }
  const auto kind = result == CUDA_ERROR_OUT_OF_MEMORY                  ? LaunchError::Kind::OutOfMemory
                    : result == CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES      ? LaunchError::Kind::TooManyResources
                    : result == CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE ? LaunchError::Kind::TooManyResources
                                                                        : LaunchError::Kind::Unknown;
  throw LaunchError(kind, launch_name(name, location) + " was refused by the driver: " + describe(result), site);
}

}  // namespace

namespace {

/// Called when the driver refused one launch of a batch: this one, or an earlier one whose output this one may have
/// read (L14). Failures that were known when the launches were issued have been handled then.
void note_outcome(const LaunchBatch::Outcome& outcome, CudaStream& stream, std::uint64_t sequence, const char* name,
                  std::source_location site) noexcept {
  PoisonLog& log = stream.poison_log();
  try {
    if (outcome.result != CUDA_SUCCESS) throw_launch_error(outcome.result, stream.location(), name, site);
    const std::exception_ptr refusal = log.admit_issued(outcome.uses, stream.location().stream, site);
    if (refusal != nullptr)
      std::rethrow_exception(CudaStreams::refused_piece({"launch", name, site}, stream.location(), refusal));
  } catch (...) {
    log.set_failed(
        outcome.uses, std::current_exception(),
        outcome.result != CUDA_SUCCESS ? MemoryFailure::Contents::Unchanged : MemoryFailure::Contents::Undefined);
    stream.fail_after_submit(sequence, std::current_exception());
  }
}

}  // namespace

void CudaLaunch::issue(const IssueTarget& target, CudaStream& stream, std::uint64_t sequence, const Location& location,
                       const char* name, std::source_location site) const {
  if (target.queue != nullptr && can_batch())
    return issue_batched(*target.queue, target.uses, stream, sequence, name, site);
  issue_single(target.stream(), location, name, site);
}

void CudaLaunch::issue_batched(StreamQueue& queue, const PieceUses& uses, CudaStream& stream, std::uint64_t sequence,
                               const char* name, std::source_location site) const {
  SmallVector<KernelLaunch::Argument, 12> arguments;
  arguments.reserve(parameters.size());
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const std::size_t end = i + 1 < parameters.size() ? parameters[i + 1].first : words.size();
    arguments.push_back({&words[parameters[i].first], (end - parameters[i].first) * sizeof(std::uint64_t)});
  }
  queue.native().launch({.function = function,
                         .grid = {count.x, count.y, count.z},
                         .block = {dim.x, dim.y, dim.z},
                         .shared_memory = static_cast<unsigned>(options->dynamic_shared_memory),
                         .arguments = {arguments.data(), arguments.size()},
                         .uses = uses},
                        [&stream, sequence, name, site](const LaunchBatch::Outcome& outcome) {
                          if (outcome.result != CUDA_SUCCESS || outcome.is_behind_failure) [[unlikely]]
                            note_outcome(outcome, stream, sequence, name, site);
                        });
}

void CudaLaunch::issue_single(CUstream stream, const Location& location, const char* name,
                              std::source_location site) const {
  SmallVector<void*, 16> values;
  values.reserve(parameters.size());
  for (const Parameter& parameter : parameters) {
    const void* const value = parameter.is_tensor_map ? static_cast<const void*>(&tensor_maps[parameter.first])
                                                      : static_cast<const void*>(&words[parameter.first]);
    values.push_back(const_cast<void*>(value));  // the driver only reads
  }
  Attributes attributes;  // not initialised: only the first numAttrs are used, and fill() sets them
  CUlaunchConfig config = launch_config({count.x, count.y, count.z}, {dim.x, dim.y, dim.z},
                                        static_cast<unsigned>(options->dynamic_shared_memory), stream);
  config.attrs = attributes.data();
  config.numAttrs = fill(attributes, *options);
  const CUresult result = driver().launch(&config, function, values.data(), nullptr);
  if (result != CUDA_SUCCESS) [[unlikely]]
    throw_launch_error(result, location, name, site);
}

}  // namespace cox::detail
