// What a CudaServer does for memory that outlives the process: see KeptServer.
#include <coxswain/servers/cuda/server/cuda_server.hpp>

#include <coxswain/device_handle/base/find_cause.hpp>
#include <coxswain/runtime/kept/kept_error.hpp>
#include <coxswain/servers/cuda/compile/loaded_kernel.hpp>
#include <coxswain/servers/cuda/device/row_remapping.hpp>
#include <coxswain/servers/cuda/driver/cuda_error.hpp>
#include <coxswain/servers/cuda/driver/cuda_try.hpp>
#include <coxswain/servers/cuda/driver/fault_report.hpp>
#include <coxswain/servers/cuda/memory/cuda_kept_storage.hpp>
#include <coxswain/servers/cuda/memory/kept_mark.hpp>
#include <coxswain/servers/cuda/memory/kept_sum.hpp>
#include <coxswain/servers/cuda/peer/launch_gate.hpp>
#include <coxswain/servers/cuda/server/cuda_device.hpp>
#include <coxswain/servers/cuda/server/open_context.hpp>

#include <array>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <source_location>
#include <string>
#include <utility>

namespace cox {
namespace {

using detail::CudaStream;

// Loading code may wait for running kernels: not on a device thread, and while no collective is half started.
void prepare_mark(DeviceId device) {
  const std::shared_ptr<void> held = detail::LaunchGate::of_process().quiesce(detail::LaunchGate::Purpose::Wait);
  detail::kept_mark_kernel().prepare(device);
  detail::kept_sum_begin_kernel().prepare(device);
  detail::kept_sum_kernel().prepare(device);
}

void launch(CUfunction function, CUstream stream, unsigned blocks, unsigned threads, void** parameters) {
  CUlaunchConfig config{};
  config.gridDimX = blocks;
  config.blockDimX = threads;
  config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
  config.hStream = stream;
  const CUresult result = detail::driver().launch(&config, function, parameters, nullptr);
  if (result != CUDA_SUCCESS) detail::throw_cuda_error(result, "launch", std::source_location::current());
}

// As checksum_of, on the GPU.
void launch_sum(CUfunction begin, CUfunction sum, CUstream stream, CUdeviceptr memory, std::uint64_t bytes,
                CUdeviceptr checksum, std::uint64_t name, std::uint64_t epoch) {
  if (detail::gpu_faulted()) detail::throw_gpu_fault(std::source_location::current());
  std::array<void*, 3> first{&checksum, &name, &epoch};
  launch(begin, stream, 1, 1, first.data());
  std::array<void*, 3> then{&memory, &bytes, &checksum};
  launch(sum, stream, detail::kept_sum_blocks(bytes), detail::kept_sum_threads, then.data());
}

// The record says "whole" while the update that was not marked overwrites the memory.
void report_missing_begin(CUresult result) noexcept {
  detail::report_gpu_fault(result, "launch of the begin of an update");
}

// After a fault no mark is made, though the context may still take launches: a begin that could not be launched counts
// as a fault, and its commit would declare whole what its update has written.
void launch_mark(CUfunction function, CUstream stream, CUdeviceptr record, detail::KeptMarkArguments arguments) {
  if (detail::gpu_faulted()) detail::throw_gpu_fault(std::source_location::current());
  CUlaunchConfig config{};
  config.gridDimX = config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = config.blockDimY = config.blockDimZ = 1;
  config.hStream = stream;
  std::array<void*, 6> parameters{&record,          &arguments.kind,       &arguments.generation,
                                  &arguments.epoch, &arguments.two_copies, &arguments.copy};
  const CUresult result = detail::driver().launch(&config, function, parameters.data(), nullptr);
  if (result == CUDA_SUCCESS) return;
  if (arguments.kind == static_cast<std::uint32_t>(KeptMarkChange::Kind::Begin)) report_missing_begin(result);
  detail::throw_cuda_error(result, "launch", std::source_location::current());
}

// Launches a mark. A begin that is issued later is destroyed instead if the driver refuses what it waits for, while
// that is handled.
class MarkLaunch {
 public:
  MarkLaunch(CUfunction function, CUdeviceptr record, const KeptMarkChange& change)
      : function_(function),
        record_(record),
        arguments_(change),
        must_run_(change.kind == KeptMarkChange::Kind::Begin) {}
  MarkLaunch(MarkLaunch&& other) noexcept
      : function_(other.function_),
        record_(other.record_),
        arguments_(other.arguments_),
        must_run_(std::exchange(other.must_run_, false)) {}
  MarkLaunch& operator=(MarkLaunch&&) = delete;
  ~MarkLaunch() {
    if (!must_run_ || std::current_exception() == nullptr) return;
    const auto* const error = find_cause<CudaError>(std::current_exception());
    report_missing_begin(error != nullptr ? static_cast<CUresult>(error->code()) : CUDA_ERROR_OUT_OF_MEMORY);
  }
  void operator()(const detail::IssueTarget& target) {
    must_run_ = false;
    launch_mark(function_, target.stream(), record_, arguments_);
  }

 private:
  CUfunction function_;
  CUdeviceptr record_;
  detail::KeptMarkArguments arguments_;
  bool must_run_;
};

}  // namespace

std::shared_ptr<KeptStorage> CudaServer::make_kept(DeviceId device, std::size_t bytes, std::source_location site) {
  prepare_mark(device);
  return detail::CudaKeptStorage::create(detail::open_context(device, site), bytes, site);
}

std::shared_ptr<KeptStorage> CudaServer::adopt_kept(DeviceId device, std::size_t bytes, const KeptPieceSource& pieces,
                                                    std::source_location site) {
  prepare_mark(device);
  return detail::CudaKeptStorage::adopt(detail::open_context(device, site), bytes, pieces, site);
}

std::string CudaServer::kept_key(DeviceId device) {
  CUdevice native = 0;
  COX_CUDA_TRY(device_get(&native, device.index));
  CUuuid uuid{};
  COX_CUDA_TRY(device_uuid(&uuid, native));
  std::string key = "GPU-";
  for (const char byte : uuid.bytes) {
    std::array<char, 3> digits{};
    std::snprintf(digits.data(), digits.size(), "%02x", static_cast<unsigned char>(byte));
    key += digits.data();
  }
  return key;
}

void CudaServer::require_sound_memory(DeviceId device, std::source_location site) {
  if (detail::RowRemapping::of_process().is_pending(detail::bus_id_of(device.index)) != true) return;
  throw KeptError(KeptError::Kind::Lost,
                  "kept memory of " + device.to_string() +
                      " is lost: the memory of the GPU has had an uncorrectable error, and rows wait to be remapped "
                      "until the GPU is reset",
                  site);
}

std::shared_ptr<void> CudaServer::count_kept(std::size_t bytes, const Caller& caller) {
  static_cast<void>(device_->enter(caller));
  const std::size_t reserved = detail::CudaKeptStorage::bytes_for(bytes);
  if (auto counted = device_->memory().count_separate(bytes, reserved)) return counted;
  throw kept_memory_does_not_fit(device_->location(caller), reserved, device_->memory().report(), caller.site);
}

void CudaServer::mark_kept(KeptMarking marking, const Caller& caller) {
  CudaStream& stream = device_->enter(caller);
  if (detail::gpu_faulted()) return;
  const bool commits = marking.change.kind == KeptMarkChange::Kind::Commit;
  BufferUses checked;
  try {
    stream.capture.require_none("a mark of kept memory", caller.site);
    marking.require_begun(caller.site);
    const CUfunction function = detail::kept_mark_kernel().require_loaded(stream.location(), caller.site).function;
    // A commit is not made on poisoned memory, nor after another change of the record has failed.
    const CUdeviceptr record =
        device_->resolve(marking.record, commits ? Access::Write : Access::Overwrite, caller, checked).address;
    // As a read of the memory: writes that were queued before come before the mark, later ones after it.
    BufferUses uses = checked;
    for (const Binding& memory : marking.memory)
      static_cast<void>(device_->resolve(memory, Access::Read, caller, uses));
    if (commits) checked = uses;
    device_->submit_checking(stream, uses, checked, {"mark of kept memory", nullptr, caller.site},
                             MarkLaunch(function, record, marking.change));
    marking.guard->is_open = marking.change.kind == KeptMarkChange::Kind::Begin;
  } catch (...) {
    const std::exception_ptr error = std::current_exception();
    marking.guard->is_open = false;  // also refuses the commit of an update that did not begin
    stream.fail(error);
    device_->poison(checked, error, caller);
  }
}

void CudaServer::sum_kept(const KeptSumming& summing, const Caller& caller) {
  CudaStream& stream = device_->enter(caller);
  if (detail::gpu_faulted()) return;
  BufferUses uses;
  try {
    stream.capture.require_none("a checksum of kept memory", caller.site);
    const CUfunction begin = detail::kept_sum_begin_kernel().require_loaded(stream.location(), caller.site).function;
    const CUfunction sum = detail::kept_sum_kernel().require_loaded(stream.location(), caller.site).function;
    const CUdeviceptr memory = device_->resolve(summing.memory, Access::Read, caller, uses).address;
    const CUdeviceptr checksum = device_->resolve(summing.checksum, Access::Write, caller, uses).address;
    device_->submit(
        stream, uses, {"checksum of kept memory", nullptr, caller.site},
        [=, bytes = summing.bytes, name = summing.name, epoch = summing.epoch](const detail::IssueTarget& target) {
          launch_sum(begin, sum, target.stream(), memory, bytes, checksum, name, epoch);
        });
  } catch (...) {
    const std::exception_ptr error = std::current_exception();
    stream.fail(error);
    device_->poison(uses, error, caller);
  }
}

void CudaServer::poison(const Binding& memory, const std::exception_ptr& cause, const Caller& caller) {
  static_cast<void>(device_->enter(caller));
  device_->poison_one(memory, cause, caller);
}

}  // namespace cox
