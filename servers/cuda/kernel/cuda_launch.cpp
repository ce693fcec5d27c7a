#include <coxswain/servers/cuda/kernel/cuda_launch.hpp>

#include <coxswain/runtime/error/launch_error.hpp>
#include <coxswain/runtime/launch/launch_limits.hpp>
#include <coxswain/servers/cuda/driver/cuda_try.hpp>
#include <coxswain/servers/cuda/driver/fault_report.hpp>
#include <coxswain/servers/cuda/stream/cuda_streams.hpp>
#include <coxswain/servers/cuda/stream/poison_log.hpp>

#include <array>
#include <cstddef>
#include <exception>
#include <span>
#include <utility>

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

void CudaLaunch::issue(const CubeCount::Static& count, const IssueTarget& target, CudaStream& stream,
                       std::uint64_t sequence) {
  if (count.is_empty()) return;
  if (!metadata.empty()) {
    const std::span<const std::byte> source = std::as_const(metadata).span();
    target.hold(std::move(metadata));  // first: without memory to hold it, nothing is copied
    COX_CUDA_TRY(copy_to_device(metadata_address, source.data(), source.size(), target.stream()));
  }
  const KernelLaunch launch = kernel_launch(count, target.uses);
  if (target.queue != nullptr && can_batch()) return issue_batched(*target.queue, launch, stream, sequence);
  issue_single(target.stream(), launch);
}

KernelLaunch CudaLaunch::kernel_launch(const CubeCount::Static& count, const PieceUses& uses) const noexcept {
  return {.function = loaded->function,
          .grid = {count.x, count.y, count.z},
          .block = {dim.x, dim.y, dim.z},
          .shared_memory = static_cast<unsigned>(options->dynamic_shared_memory),
          .words = {words.data(), words.size()},
          .parameter_begins = std::span(loaded->parameter_begins).first(loaded->parameter_sizes.size()),
          .uses = uses};
}

void CudaLaunch::issue_batched(StreamQueue& queue, const KernelLaunch& launch, CudaStream& stream,
                               std::uint64_t sequence) const {
  queue.native().add_launch(launch, [&stream, sequence, label = name, at = site](const LaunchBatch::Outcome& outcome) {
    if (outcome.result != CUDA_SUCCESS || outcome.is_behind_failure) [[unlikely]]
      note_outcome(outcome, stream, sequence, label, at);
  });
}

void CudaLaunch::issue_single(CUstream stream, const KernelLaunch& launch) const {
  SmallVector<void*, 16> values;
  values.reserve(launch.parameter_begins.size());
  for (const std::uint32_t begin : launch.parameter_begins)
    values.push_back(const_cast<std::uint64_t*>(&launch.words[begin]));  // the driver only reads
  Attributes attributes;  // not initialised: only the first numAttrs are used, and fill() sets them
  CUlaunchConfig config = launch_config(launch.grid, launch.block, launch.shared_memory, stream);
  config.attrs = attributes.data();
  config.numAttrs = fill(attributes, *options);
  const CUresult result = driver().launch(&config, launch.function, values.data(), nullptr);
  if (result != CUDA_SUCCESS) [[unlikely]]
    throw_launch_error(result, location, name, site);
}

}  // namespace cox::detail
