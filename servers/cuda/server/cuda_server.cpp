#include <coxswain/servers/cuda/server/cuda_server.hpp>

#include <coxswain/runtime/base/access.hpp>
#include <coxswain/runtime/buffer/operation_memory.hpp>

#include <coxswain/collectives/communicator/communicators.hpp>
#include <coxswain/collectives/communicator/nccl_world_part.hpp>
#include <coxswain/collectives/nccl/device_versions.hpp>
#include <coxswain/collectives/nccl/nccl.hpp>
#include <coxswain/device_handle/base/call_error.hpp>
#include <coxswain/device_handle/service/thread_context.hpp>
#include <coxswain/runtime/communication/collective_error.hpp>
#include <coxswain/runtime/config/process_settings.hpp>
#include <coxswain/runtime/error/log.hpp>
#include <coxswain/runtime/error/server_error.hpp>
#include <coxswain/runtime/error/server_operation.hpp>
#include <coxswain/runtime/kept/keeper_connection.hpp>
#include <coxswain/runtime/profile/profile_error.hpp>
#include <coxswain/servers/cuda/device/row_remapping.hpp>
#include <coxswain/servers/cuda/driver/cuda_error.hpp>
#include <coxswain/servers/cuda/driver/cuda_try.hpp>
#include <coxswain/servers/cuda/peer/launch_gate.hpp>
#include <coxswain/servers/cuda/server/cuda_collective.hpp>
#include <coxswain/servers/cuda/server/cuda_device.hpp>
#include <coxswain/servers/cuda/server/cuda_work.hpp>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <string>
#include <thread>
#include <utility>

namespace cox {

using detail::CudaDevice;
using detail::CudaProfile;
using detail::CudaStream;
using detail::IssueTarget;

namespace {

void require_device(DeviceId device) {
  const auto devices = enumerate_cuda_devices();
  if (std::ranges::find(devices, device) != devices.end()) return;
  if (device.type != cuda_device_type)
    throw CallError(
        CallError::Kind::UnknownDevice,
        device.to_string() + " is not a CUDA device: CUDA devices have type " + std::to_string(cuda_device_type),
        std::source_location());
  throw CallError(
      CallError::Kind::UnknownDevice,
      device.to_string() + " does not exist: " +
          (devices.empty() ? why_no_cuda()
                           : "there are " + std::to_string(devices.size()) + " CUDA devices, counted from 0"),
      std::source_location());
}

// "NCCL 2.28.9, driver of CUDA 13.0".
std::string versions_of_gpus() {
  const detail::FoundNccl& nccl = detail::find_nccl();
  const detail::FoundDriver& found = detail::find_driver();
  std::string text = nccl.nccl == nullptr ? "no NCCL" : "NCCL " + detail::nccl_version_text(nccl.nccl->version);
  if (found.driver == nullptr) return text + ", no driver";
  const int version = found.driver->version;
  return text + ", driver of CUDA " + std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

[[maybe_unused]] const bool has_versions = (detail::set_device_versions(cuda_device_type, versions_of_gpus), true);

// Of the devices of other processes the world knows whether they exist.
void require_devices(const CommunicationId& devices) {
  const std::size_t count = enumerate_cuda_devices().size();
  if (devices.devices().front().type == cuda_device_type &&
      std::ranges::all_of(own_devices(devices), [count](DeviceId device) { return device.index < count; }))
    return;
  throw CollectiveError(CollectiveError::Kind::Validation,
                        "communicator " + devices.to_string() + " refused: there are " + std::to_string(count) +
                            " CUDA devices, counted from 0",
                        std::source_location());
}

std::uint32_t unsigned_attribute(CUdevice device, CUdevice_attribute which) {
  int value = 0;
  COX_CUDA_TRY(device_attribute(&value, which, device));
  return static_cast<std::uint32_t>(value);
}

HardwareProperties hardware_of(CUdevice device) {
  HardwareProperties hardware;
  hardware.plane_size = unsigned_attribute(device, CU_DEVICE_ATTRIBUTE_WARP_SIZE);
  hardware.max_shared_memory = unsigned_attribute(device, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
  hardware.max_units_per_cube = unsigned_attribute(device, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
  hardware.max_cube_dim = {unsigned_attribute(device, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X),
                           unsigned_attribute(device, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y),
                           unsigned_attribute(device, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z)};
  hardware.max_cube_count = {unsigned_attribute(device, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X),
                             unsigned_attribute(device, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y),
                             unsigned_attribute(device, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z)};
  return hardware;
}

std::shared_ptr<const ServerUtilities<CudaServer>> describe(DeviceId device, CUdevice native) {
  const Settings now = settings();
  const CudaDeviceFacts facts = describe_cuda_device(device);
  DeviceProperties properties;
  properties.name = facts.name;
  properties.hardware = hardware_of(native);
  const std::size_t wanted = now.get<std::uint64_t>("cuda.memory");
  properties.memory = {.capacity = wanted == 0 ? facts.memory : std::min<std::size_t>(wanted, facts.memory),
                       .alignment = CudaServer::memory_alignment};
  for (const Feature feature : {Feature::DynamicCubeCount, Feature::Profiling, Feature::Graphs})
    properties.features.insert(feature);
  if (enumerate_cuda_devices().size() > 1) {
    properties.features.insert(Feature::PeerCopy);
    if (detail::find_nccl().nccl != nullptr) properties.features.insert(Feature::Collectives);
  }
  if (facts.compute_major >= 9) properties.features.insert(Feature::TensorMaps);
  // Constructed in place, since a Profiler can be neither copied nor moved.
  return std::shared_ptr<const ServerUtilities<CudaServer>>(
      new ServerUtilities<CudaServer>{{.owner = {.device = device, .generation = MemoryOwner::next_generation()},
                                       .properties = std::move(properties),
                                       .completion_thread = std::make_shared<CompletionThread>(device),
                                       .check_mode = now.get<CheckMode>("compilation.check_mode"),
                                       .profiler = Profiler(now.get<ProfileLevel>("profiling.level"))},
                                      {.compute_major = facts.compute_major,
                                       .compute_minor = facts.compute_minor,
                                       .multiprocessors = facts.multiprocessors,
                                       .driver_version = detail::driver().version,
                                       .bus_id = facts.bus_id,
                                       .streams = now.get<std::uint64_t>("cuda.streams")},
                                      PitchedLayoutPolicy(CudaServer::memory_alignment)});
}

// If a supervisor may hold memory of the device, require_sound_memory() will need NVML.
void prepare_kept(DeviceId device) {
  const char* const supervisor = std::getenv(KeeperConnection::variable);
  if (supervisor == nullptr || *supervisor == '\0') return;
  detail::RowRemapping::of_process().prepare(detail::bus_id_of(device.index));
}

}  // namespace

CudaServer::CudaServer(DeviceId device, ThreadContext* thread) {
  require_device(device);
  if (detail::gpu_faulted()) detail::throw_gpu_fault(std::source_location::current());
  prepare_kept(device);  // beside what follows, which takes longer
  auto context = detail::CudaContext::open(device.index);
  context->make_current();
  utilities_ = describe(device, context->device());
  device_ = std::make_unique<CudaDevice>(utilities_, std::move(context), thread);
}
CudaServer::CudaServer(DeviceId device) : CudaServer(device, nullptr) {}
CudaServer::CudaServer(ThreadContext& thread) : CudaServer(thread.device(), &thread) {}
CudaServer::CudaServer(CudaServer&&) noexcept = default;
CudaServer& CudaServer::operator=(CudaServer&&) noexcept = default;
CudaServer::~CudaServer() = default;

void CudaServer::attach(ThreadContext& thread) { device_->attach(thread); }

std::shared_ptr<const ServerUtilities<CudaServer>> CudaServer::utilities() const {
  Communicators::join_in_process(utilities_->owner.device, utilities_->owner.generation);
  return utilities_;
}

std::vector<DeviceId> CudaServer::enumerate_devices(std::uint16_t type) {
  return type == cuda_device_type ? enumerate_cuda_devices() : std::vector<DeviceId>();
}

bool CudaServer::initialize_memory(ManagedMemory memory, std::size_t size, const Caller& caller) {
  MemoryState& state = memory.state();
  CudaStream& stream = device_->enter(caller);
  try {
    if (detail::gpu_faulted()) detail::throw_gpu_fault(caller.site);
    if (stream.capture.capturing()) stream.capture.graph().keep(memory);
    if (stream.capture.preparing()) stream.capture.keep(memory);
    state.resource = device_->allocate(size, caller);
    state.published.store(true, std::memory_order_release);  // pairs with the acquire in MemoryView::failure
    return true;
  } catch (...) {
    state.failure = std::current_exception();
    state.published.store(true, std::memory_order_release);
    stream.fail(state.failure);
    return false;
  }
}

void CudaServer::write(Uploads uploads, const Caller& caller) {
  CudaStream& stream = device_->enter(caller);
  if (detail::gpu_faulted()) return;  // waiters of the stream get the fault
  auto next = uploads.begin();
  try {
    for (; next != uploads.end(); ++next) detail::queue_upload(*device_, stream, *next, caller);
  } catch (...) {
    const std::exception_ptr error = std::current_exception();
    stream.fail(error);
    for (; next != uploads.end(); ++next) device_->poison_one(next->destination.binding, error, caller);
  }
}

void CudaServer::read(Downloads downloads, const Caller& caller, Promise<std::vector<Bytes>> promise) {
  detail::queue_download(*device_, device_->enter(caller), std::move(downloads), caller, std::move(promise));
}

void CudaServer::launch(const CudaKernel& kernel, const CubeCount& count, const LaunchArguments& arguments,
                        ExecutionMode, const Caller& caller, SubmitMode when) {
  if (count.is_empty()) return;
  CudaStream& stream = device_->enter(caller);
  if (detail::gpu_faulted()) return;  // waiters of the stream get the fault
  try {
    detail::enqueue_cuda_launch(*device_, stream, kernel, count, arguments, caller);
  } catch (...) {
    const std::exception_ptr error = std::current_exception();
    stream.fail(error);
    detail::poison_outputs(*device_, kernel, arguments, error, caller);
  }
  device_->flush_launches(when);
}

void CudaServer::sync(const Caller& caller, Promise<void> promise) {
  detail::queue_sync(*device_, device_->enter(caller), caller, std::move(promise));
}

void CudaServer::flush(const Caller& caller) {
  CudaStream& stream = device_->enter(caller);
  stream.capture.require_none("a flush", caller.site);
  require_healthy(stream, ServerOperation::Flush, caller.site);
  device_->clear_pending_waits(stream, caller);
  device_->streams().poll();
  device_->memory().collect_returned();
}

std::vector<Bytes> CudaServer::staging(std::span<const std::size_t> sizes, const Caller& caller) {
  static_cast<void>(device_->enter(caller));
  std::vector<Bytes> buffers;
  buffers.reserve(sizes.size());
  for (const std::size_t size : sizes) buffers.push_back(device_->allocate_pinned(size, caller));
  return buffers;
}

void CudaServer::accept(const Binding& memory, const Caller& caller) {
  BufferUses uses;
  CudaStream& stream = device_->enter(caller);
  stream.capture.require_none("accepting memory", caller.site);
  static_cast<void>(device_->find(memory, Access::Overwrite, caller, uses));
  uses.front().whole = true;
  device_->submit(stream, uses, {nullptr, nullptr, caller.site}, [](const detail::IssueTarget&) {});
}

CudaResource CudaServer::get_resource(const Binding& binding, const Caller& caller) {
  CudaStream& stream = device_->enter(caller);
  BufferUses uses;
  const detail::CudaRange range = device_->resolve(binding, Access::Write, caller, uses);
  device_->clear_pending_waits(stream, caller);
  if (device_->streams().has_launches()) device_->streams().flush_launches();  // their outcome is known then
  if (const auto refusal = OperationMemory(uses, caller.site).refusal(stream.location()))
    std::rethrow_exception(refusal);
  return {range.address, range.size, stream.queue().native().native()};
}

MemoryUsage CudaServer::memory_usage(const Caller& caller) {
  require_healthy(device_->enter(caller), ServerOperation::MemoryUsage, caller.site);
  return device_->memory().usage();
}

MemoryReport CudaServer::memory_report(const Caller& caller) {
  require_healthy(device_->enter(caller), ServerOperation::MemoryReport, caller.site);
  return device_->memory().report();
}

void CudaServer::memory_cleanup(const Caller& caller) {
  static_cast<void>(device_->enter(caller));
  device_->streams().poll();
  device_->memory().cleanup();
  // Page-locked memory is kept until the device is closed: freeing it would wait for running kernels.
}

void CudaServer::allocation_mode(AllocationMode mode, const Caller& caller) {
  CudaStream& stream = device_->enter(caller);
  if (mode == AllocationMode::Persistent) {
    ++stream.persistent_windows;
  } else if (stream.persistent_windows != 0) {
    --stream.persistent_windows;
  }
}

void CudaServer::install_memory_pools(const MemoryPoolLayout& layout, const Caller& caller) {
  static_cast<void>(device_->enter(caller));
  require_valid(layout, device_->location(caller), caller.site);
  device_->streams().poll();
  if (device_->memory().install(layout)) return;
  const std::uint64_t alive = device_->memory().usage().number_allocs;
  throw ServerError(ServerError::Kind::Validation,
                    "memory pools cannot be installed on " + device_->location(caller).to_string() + ": " +
                        (alive != 0 ? std::to_string(alive) + " allocations are alive"
                                    : std::string("queued work still uses memory")),
                    caller.site);
}

void CudaServer::graph_prepare(const Caller& caller) {
  CudaStream& stream = device_->enter(caller);
  stream.capture.require(CaptureState::Call::Prepare, caller.site);
  require_healthy(stream, ServerOperation::GraphPrepare, caller.site);
  stream.capture.prepare(caller.site);
}

void CudaServer::begin_capture(const Caller& caller) {
  CudaStream& stream = device_->enter(caller);
  stream.capture.require(CaptureState::Call::Start, caller.site);
  require_healthy(stream, ServerOperation::BeginCapture, caller.site);
  device_->begin_capture(caller.stream);
  stream.capture.start(caller.site);
}

GraphId CudaServer::end_capture(const Caller& caller) { return device_->end_capture(device_->enter(caller), caller); }

// The gate is closed for short times only, since meanwhile no collective of the process begins. If there is no such
// moment, or if it fails, the first replay instantiates the graphs, and reports a failure.
UniqueFunction<void()> CudaServer::make_ready(GraphId graph) {
  return [graphs = device_->part_graphs(graph), device = device_->location(Caller{}).device] {
    constexpr std::chrono::milliseconds attempt{100};
    constexpr int attempts = 20;
    if (graphs == nullptr || detail::gpu_faulted()) return;
    try {
      for (int i = 0; i < attempts; ++i) {
        if (const auto held = detail::LaunchGate::of_process().try_quiesce(attempt)) return graphs->instantiate();
        std::this_thread::sleep_for(attempt);
      }
      log::write(LogSubsystem::Cuda, LogLevel::Warn, [&] {
        return "collectives are half launched all the time: the first replay of a graph on " + device.to_string() +
               " has to prepare it";
      });
    } catch (const std::exception& error) {
      log::write(LogSubsystem::Cuda, LogLevel::Warn, [&] {
        return "the first replay of a graph on " + device.to_string() + " has to prepare it: " + error.what();
      });
    }
  };
}

bool CudaServer::capturing(const Caller& caller) { return device_->enter(caller).capture.capturing(); }

void CudaServer::replay(GraphId graph, MembershipEpoch call_epoch, const Caller& caller) {
  const std::shared_ptr<CudaStream> stream = device_->enter(caller).shared_from_this();  // replay() may forget streams
  if (detail::gpu_faulted()) return;  // waiters of the stream get the fault
  try {
    device_->replay(graph, call_epoch, caller);
    device_->advance();  // as after a collective
  } catch (...) {
    stream->fail(std::current_exception());
  }
}

void CudaServer::graph_destroy(GraphId graph, const Caller& caller) {
  static_cast<void>(device_->enter(caller));
  device_->remove_graph(graph);
}

void CudaServer::on_task_error(std::exception_ptr error, StreamId stream) {
  device_->streams().find_or_create(stream).fail(std::move(error));
}

void CudaServer::report_failures_to(std::optional<StreamId> stream, const Caller& caller) {
  if (!stream) return device_->enter(caller).reports.reset();
  CudaStream& target = device_->streams().find_or_create(*stream);
  const auto errors = target.errors();  // keeps the target stream: enter() may remove idle streams
  CudaStream& helper = device_->enter(caller);
  try {
    if (helper.reports == nullptr) helper.reports = std::make_shared<detail::FailureReports>();
    helper.reports->add(errors, target.next_sequence());
    target.capture.require_none("work on another stream on its behalf", caller.site);
  } catch (...) {
    target.fail(std::current_exception());
  }
}

std::shared_ptr<Communicator> CudaServer::communicator(const CommunicationId& devices) {
  require_devices(devices);
  return Communicators::of_process().find_or_open(devices);
}

std::shared_ptr<Communicator> CudaServer::renew_communicator(const CommunicationId& devices) {
  require_devices(devices);
  return Communicators::of_process().renew(devices);
}

void CudaServer::communicate(const std::shared_ptr<Communicator>& communicator, CollectiveCallList calls,
                             const Caller& caller, SubmitMode when) {
  CudaStream& stream = device_->enter(caller);
  try {
    detail::queue_collective(*device_, stream, communicator, calls, caller, when);
  } catch (...) {
    const std::exception_ptr error = std::current_exception();
    stream.fail(error);
    return detail::poison_destinations(*device_, calls, error, caller);
  }
  try {
    device_->advance();  // if this was the last rank, the operation can be launched now
  } catch (...) {
    stream.fail(std::current_exception());
  }
}

void CudaServer::sync_collective(const Caller& caller) {
  CudaStream& stream = device_->enter(caller);
  if (detail::gpu_faulted()) return;  // waiters of the stream get the fault
  try {
    const auto add_pending_waits = [](CudaDevice& device, CudaStream& waiting, MembershipEpoch) {
      waiting.add_pending_waits(device.ranks().last_positions());
    };
    if (stream.capture.capturing()) return stream.capture.graph().add_replay_callback(add_pending_waits);
    add_pending_waits(*device_, stream, {});
  } catch (...) {
    stream.fail(std::current_exception());
  }
}

}  // namespace cox
