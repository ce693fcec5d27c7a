#include <coxswain/servers/host/server/host_server.hpp>

#include <coxswain/collectives/communicator/communicators.hpp>
#include <coxswain/device_handle/base/call_error.hpp>
#include <coxswain/runtime/communication/collective_error.hpp>
#include <coxswain/runtime/communication/world_process.hpp>
#include <coxswain/runtime/config/process_settings.hpp>
#include <coxswain/runtime/error/server_error.hpp>
#include <coxswain/runtime/error/server_operation.hpp>
#include <coxswain/runtime/profile/profile_error.hpp>
#include <coxswain/servers/host/memory/memory_file.hpp>
#include <coxswain/servers/host/server/host_collective.hpp>
#include <coxswain/servers/host/server/host_device.hpp>
#include <coxswain/servers/host/server/host_work.hpp>
#include <coxswain/servers/host/stream/stream_sync.hpp>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

namespace cox {

using detail::HostDevice;
using detail::HostProfile;
using detail::HostRange;
using detail::HostStream;

namespace {

HostOptions options_for(DeviceId device) {
  const HostOptions options = host_options();
  if (device.type != host_device_type)
    throw CallError(
        CallError::Kind::UnknownDevice,
        device.to_string() + " is not a host device: host devices have type " + std::to_string(host_device_type),
        std::source_location());
  if (device.index >= options.device_count)
    throw CallError(CallError::Kind::UnknownDevice,
                    device.to_string() + " does not exist: there are " + std::to_string(options.device_count) +
                        " host devices, counted from 0",
                    std::source_location());
  return options;
}

void require_host_devices(const CommunicationId& devices) {
  // Of devices of other processes, those know how many there are.
  const auto exists = [count = host_device_count(), own = own_process()](DeviceId device) {
    return device.type == host_device_type && (detail::local_name(device, own).process != 0 || device.index < count);
  };
  if (std::ranges::all_of(devices.devices(), exists)) return;
  throw CollectiveError(CollectiveError::Kind::Validation,
                        "communicator " + devices.to_string() + " refused: there are " +
                            std::to_string(host_device_count()) + " host devices, counted from 0",
                        std::source_location());
}

std::shared_ptr<const ServerUtilities<HostServer>> describe(DeviceId device, const HostOptions& options) {
  DeviceProperties properties;
  properties.name = "host device " + std::to_string(device.index);
  properties.hardware.cpu_threads = static_cast<std::uint32_t>(options.threads_per_device);
  properties.memory = {.capacity = options.memory_capacity, .alignment = HostServer::memory_alignment};
  for (const Feature feature : {Feature::DynamicCubeCount, Feature::Profiling, Feature::Graphs, Feature::Collectives})
    properties.features.insert(feature);
  const Settings now = settings();
  // Constructed in place: a Profiler cannot be moved.
  return std::shared_ptr<const ServerUtilities<HostServer>>(
      new ServerUtilities<HostServer>{{.owner = {.device = device, .generation = MemoryOwner::next_generation()},
                                       .properties = std::move(properties),
                                       .completion_thread = std::make_shared<CompletionThread>(device),
                                       .check_mode = now.get<CheckMode>("compilation.check_mode"),
                                       .profiler = Profiler(now.get<ProfileLevel>("profiling.level"))},
                                      {.threads = options.threads_per_device},
                                      PitchedLayoutPolicy(HostServer::memory_alignment)});
}

}  // namespace

HostServer::HostServer(DeviceId device, ThreadContext* thread) {
  const HostOptions options = options_for(device);
  utilities_ = describe(device, options);
  device_ = std::make_unique<HostDevice>(utilities_, options, thread);
}
HostServer::HostServer(DeviceId device) : HostServer(device, nullptr) {}
HostServer::HostServer(ThreadContext& thread) : HostServer(thread.device(), &thread) {}
HostServer::HostServer(HostServer&&) noexcept = default;
HostServer& HostServer::operator=(HostServer&&) noexcept = default;
HostServer::~HostServer() = default;

void HostServer::attach(ThreadContext& thread) { device_->attach(thread); }

std::shared_ptr<const ServerUtilities<HostServer>> HostServer::utilities() const {
  Communicators::join_in_process(utilities_->owner.device, utilities_->owner.generation);
  return utilities_;
}

std::vector<DeviceId> HostServer::enumerate_devices(std::uint16_t type) {
  std::vector<DeviceId> devices;
  if (type != host_device_type) return devices;
  const std::uint16_t count = host_device_count();
  devices.reserve(count);
  for (std::uint16_t index = 0; index < count; ++index) devices.push_back({.type = type, .index = index});
  return devices;
}

bool HostServer::initialize_memory(ManagedMemory memory, std::size_t size, const Caller& caller) {
  MemoryState& state = memory.state();
  try {
    HostStream& stream = device_->stream(caller.stream);
    if (stream.capture.capturing()) stream.capture.graph().keep(memory);
    if (stream.capture.preparing()) stream.capture.keep(memory);
    state.resource = device_->allocate(size, caller);
    state.published.store(true, std::memory_order_release);  // pairs with the acquire in MemoryView::failure
    return true;
  } catch (...) {
    state.failure = std::current_exception();
    state.published.store(true, std::memory_order_release);
    device_->stream(caller.stream).fail(state.failure);
    return false;
  }
}

void HostServer::write(Uploads uploads, const Caller& caller) {
  auto next = uploads.begin();
  try {
    for (; next != uploads.end(); ++next) detail::queue_upload(*device_, *next, caller);
  } catch (...) {
    const std::exception_ptr error = std::current_exception();
    device_->stream(caller.stream).fail(error);
    for (; next != uploads.end(); ++next) device_->poison_one(next->destination.binding, error, caller);
  }
}

void HostServer::read(Downloads downloads, const Caller& caller, Promise<std::vector<Bytes>> promise) {
  detail::queue_download(*device_, std::move(downloads), caller, std::move(promise));
}

void HostServer::launch(HostKernel kernel, const CubeCount& count, const LaunchArguments& arguments, ExecutionMode mode,
                        const Caller& caller, SubmitMode) {
  if (count.is_empty()) return;
  try {
    detail::enqueue_host_launch(*device_, std::move(kernel), count, arguments, mode, caller);
  } catch (...) {
    const std::exception_ptr error = std::current_exception();
    device_->stream(caller.stream).fail(error);
    device_->poison(arguments.buffers, error, caller);
  }
}

void HostServer::sync(const Caller& caller, Promise<void> promise) {
  HostStream& stream = device_->stream(caller.stream);
  try {
    stream.capture.require_none("a sync", caller.site);
  } catch (...) {
    return promise.set_error(std::current_exception());
  }
  const detail::HostEvent event = stream.next_event();
  detail::HostEvents ends = device_->streams().events(stream.collectives.left(device_->streams()));
  if (ends.empty())
    return stream.submit(
        {},
        [stream = stream.shared_from_this(), event, site = caller.site, facts = device_->facts(),
         promise = std::move(promise)]() mutable {
          // Before the promise is completed, so that the caller finds the table of all earlier launches.
          facts->profiler.summarise();
          if (auto error = stream->take_errors_before(event, site)) return promise.set_error(std::move(error));
          promise.set_value();
        },
        "sync");
  // The stream continues: only the future of the sync waits for the collectives.
  auto sync = std::make_shared<detail::StreamSync>(stream.shared_from_this(), event, caller.site, std::move(ends),
                                                   std::move(promise));
  stream.submit(
      {},
      [sync = std::move(sync), facts = device_->facts()] {
        facts->profiler.summarise();
        sync->begin();
      },
      "sync");
}

void HostServer::flush(const Caller& caller) {
  device_->stream(caller.stream).capture.require_none("a flush", caller.site);
  require_healthy(device_->stream(caller.stream), ServerOperation::Flush, caller.site);
  device_->memory().collect_returned();
}

std::vector<Bytes> HostServer::staging(std::span<const std::size_t> sizes, const Caller& caller) {
  std::vector<Bytes> buffers;
  buffers.reserve(sizes.size());
  for (const std::size_t size : sizes) buffers.push_back(device_->allocate_pinned(size, caller));
  return buffers;
}

void HostServer::accept(const Binding& memory, const Caller& caller) {
  BufferUses uses;
  HostStream& stream = device_->stream(caller.stream);
  stream.capture.require_none("accepting memory", caller.site);
  static_cast<void>(device_->find(memory, Access::Overwrite, caller, uses));
  uses.front().whole = true;
  device_->submit(stream, uses, [memory = OperationMemory(uses, caller.site)] { memory.set_succeeded(); }, "accept");
}

std::span<std::byte> HostServer::get_resource(const Binding& binding, const Caller& caller) {
  BufferUses uses;
  const HostRange range = device_->resolve(binding, Access::Write, caller, uses);
  if (const auto refusal = OperationMemory(uses, caller.site).refusal(device_->location(caller)))
    std::rethrow_exception(refusal);
  return {range.data, range.size};
}

MemoryUsage HostServer::memory_usage(const Caller& caller) {
  require_healthy(device_->stream(caller.stream), ServerOperation::MemoryUsage, caller.site);
  return device_->memory().usage();
}

MemoryReport HostServer::memory_report(const Caller& caller) {
  require_healthy(device_->stream(caller.stream), ServerOperation::MemoryReport, caller.site);
  return device_->memory().report();
}

void HostServer::memory_cleanup(const Caller&) {
  device_->memory().cleanup();
  device_->pinned().cleanup();
}

void HostServer::allocation_mode(AllocationMode mode, const Caller& caller) {
  HostStream& stream = device_->stream(caller.stream);
  if (mode == AllocationMode::Persistent) {
    ++stream.persistent_windows;
  } else if (stream.persistent_windows != 0) {
    --stream.persistent_windows;
  }
}

void HostServer::install_memory_pools(const MemoryPoolLayout& layout, const Caller& caller) {
  require_valid(layout, device_->location(caller), caller.site);
  if (device_->memory().install(layout)) return;
  const std::uint64_t alive = device_->memory().usage().number_allocs;
  throw ServerError(ServerError::Kind::Validation,
                    "memory pools cannot be installed on " + device_->location(caller).to_string() + ": " +
                        (alive != 0 ? std::to_string(alive) + " allocations are alive"
                                    : std::string("queued work still uses memory")),
                    caller.site);
}

ProfilingToken HostServer::start_profile(const Caller& caller) {
  HostStream& stream = device_->stream(caller.stream);
  stream.capture.require_none("a profile", caller.site);
  auto profile = std::make_shared<HostProfile>();
  profile->begin_piece = stream.next_position().position;
  const std::uint64_t begin = 2 * profile->begin_piece;
  const ProfilingToken token = stream.profiles.open(profile, caller.site);
  try {
    stream.errors()->begin_profile(begin);
    stream.submit(
        {},
        [stream = stream.shared_from_this(), profile = std::move(profile)]() mutable {
          stream->begin_profile(std::move(profile));
        },
        "profile begins");
  } catch (...) {
    // The profile has not begun: close it, so that it takes no failures of the stream.
    stream.errors()->end_profile(begin);
    static_cast<void>(stream.profiles.end(token, caller.site));
    throw;
  }
  return token;
}

ProfileDuration HostServer::end_profile(ProfilingToken token, ProfileFailures failures, const Caller& caller) {
  HostStream& stream = device_->stream(caller.stream);
  Promise<ProfileTicks> promise(device_->facts()->completion_thread);
  ProfileDuration duration(promise.future(), TimingMethod::System);
  auto ended = stream.profiles.end(token, caller.site);
  stream.errors()->bound_profile(2 * ended.position->begin_piece, 2 * stream.next_position().position);
  stream.submit(
      {},
      [stream = stream.shared_from_this(), event = stream.next_event(), site = caller.site, ended = std::move(ended),
       failures, promise = std::move(promise)]() mutable {
        const ProfileTicks ticks = stream->end_profile(ended.position, event, failures);
        // A nested profile may have taken the failure from the stream. `ended` still has it, from when the work was
        // queued.
        const std::exception_ptr& failure =
            ended.position->failure != nullptr ? ended.position->failure : ended.failure;
        if (failure == nullptr) return promise.set_value(ticks);
        promise.set_error({std::make_exception_ptr(profile_failure(failure, stream->location(), site)),
                           std::move(ended.position->receipt)});
      },
      "profile ends");
  return duration;
}

void HostServer::graph_prepare(const Caller& caller) {
  HostStream& stream = device_->stream(caller.stream);
  stream.capture.require(CaptureState::Call::Prepare, caller.site);
  require_healthy(device_->stream(caller.stream), ServerOperation::GraphPrepare, caller.site);
  stream.capture.prepare(caller.site);
}

void HostServer::begin_capture(const Caller& caller) {
  HostStream& stream = device_->stream(caller.stream);
  stream.capture.require(CaptureState::Call::Start, caller.site);
  require_healthy(device_->stream(caller.stream), ServerOperation::BeginCapture, caller.site);
  device_->begin_capture(caller.stream);
  stream.capture.start(caller.site);
}

GraphId HostServer::end_capture(const Caller& caller) {
  return device_->end_capture(device_->stream(caller.stream), caller);
}

bool HostServer::capturing(const Caller& caller) { return device_->stream(caller.stream).capture.capturing(); }

void HostServer::replay(GraphId graph, MembershipEpoch call_epoch, const Caller& caller) {
  try {
    device_->replay(graph, call_epoch, caller);
  } catch (...) {
    device_->stream(caller.stream).fail(std::current_exception());
  }
}

void HostServer::graph_destroy(GraphId graph, const Caller&) { device_->remove_graph(graph); }

void HostServer::require_foreign(DeviceId device, const void* pointer, std::size_t bytes, std::source_location site) {
  const auto refuse = [&](IoError::Kind kind, const char* why) {
    throw IoError(kind, "memory cannot be borrowed for " + device.to_string() + ": the pointer " + why, site);
  };
  const auto address = std::bit_cast<std::uintptr_t>(pointer);
  if (pointer == nullptr) refuse(IoError::Kind::InvalidPointer, "is null");
  if (address % BorrowedMemory::alignment != 0)
    refuse(IoError::Kind::Misaligned, "is not a multiple of 16 bytes; borrow the allocation, and use a view");
  if (address + bytes < address) refuse(IoError::Kind::OutOfBounds, "plus the size is beyond the address space");
}

void HostServer::borrow(ManagedMemory memory, void* pointer, const Fence&, const std::shared_ptr<BorrowedMemory>& owner,
                        const Caller& caller) {
  HostStream& stream = device_->stream(caller.stream);
  MemoryState& state = memory.state();
  try {
    stream.capture.require_none("borrowing memory", caller.site);
    state.resource = device_->borrow(static_cast<std::byte*>(pointer), memory.size(), owner);
  } catch (...) {
    state.failure = std::current_exception();
    owner->release();
  }
  state.published.store(true, std::memory_order_release);  // pairs with the acquire in MemoryView::failure
  if (state.failure != nullptr) stream.fail(state.failure);
}

// Work of a host stream needs no other issue than to be queued.
void HostServer::issued(const Caller& caller, Promise<void> promise) {
  try {
    device_->stream(caller.stream).capture.require_none("a wait for work to be issued", caller.site);
  } catch (...) {
    return promise.set_error(std::current_exception());
  }
  promise.set_value();
}

// A kernel of one cube.
void HostServer::call(const LaunchArguments& arguments, NativeCall function, const Caller& caller) {
  const auto run = [shared = std::make_shared<NativeCall>(std::move(function))](const KernelContext& context) {
    std::vector<void*> pointers;
    for (std::size_t i = 0; i < context.buffer_count(); ++i)
      pointers.push_back(const_cast<std::byte*>(context.buffer<const std::byte>(i).data()));
    (*shared)(pointers);
  };
  launch(HostKernel("call", CubeDim{1, 1, 1}, arguments.buffers.size(), run), CubeCount::single(), arguments,
         ExecutionMode::Checked, caller, SubmitMode::Immediate);
}

bool HostServer::try_call(const LaunchArguments& arguments, NativeCall& function, const Caller& caller) {
  device_->stream(caller.stream).capture.require_none("a quiet call", caller.site);
  call(arguments, std::move(function), caller);
  return true;
}

std::shared_ptr<KeptStorage> HostServer::make_kept(DeviceId, std::size_t bytes, std::source_location site) {
  return detail::MemoryFile::create(bytes, site);
}

std::shared_ptr<KeptStorage> HostServer::adopt_kept(DeviceId, std::size_t, const KeptPieceSource& pieces,
                                                    std::source_location site) {
  return detail::MemoryFile::adopt(pieces, site);
}

std::shared_ptr<void> HostServer::count_kept(std::size_t bytes, const Caller& caller) {
  const std::size_t reserved = detail::MemoryFile::bytes_for(bytes);
  if (auto counted = device_->memory().count_separate(bytes, reserved)) return counted;
  throw kept_memory_does_not_fit(device_->location(caller), reserved, device_->memory().report(), caller.site);
}

void HostServer::mark_kept(KeptMarking marking, const Caller& caller) {
  HostStream& stream = device_->stream(caller.stream);
  const bool commits = marking.change.kind == KeptMarkChange::Kind::Commit;
  BufferUses checked;
  try {
    stream.capture.require_none("a mark of kept memory", caller.site);
    marking.require_begun(caller.site);
    // A commit is not made on poisoned memory, nor after another change of the record has failed.
    const detail::HostRange record =
        device_->resolve(marking.record, commits ? Access::Write : Access::Overwrite, caller, checked);
    // As a read of the memory: writes that were queued before come before the mark, later ones after it.
    BufferUses uses = checked;
    for (const Binding& memory : marking.memory)
      static_cast<void>(device_->resolve(memory, Access::Read, caller, uses));
    if (commits) checked = uses;
    device_->submit(
        stream, uses,
        [record, change = marking.change, set = marking.guard->set, location = stream.location(), site = caller.site,
         memory = device_->operation_memory(stream, checked, caller.site)] {
          memory.run(
              location,
              [&] {
                if (!change.apply(*reinterpret_cast<KeptRecord*>(record.data)))
                  throw kept_mark_error(set, location, site);
              },
              std::identity());
        },
        "mark");
    marking.guard->is_open = marking.change.kind == KeptMarkChange::Kind::Begin;
  } catch (...) {
    const std::exception_ptr error = std::current_exception();
    marking.guard->is_open = false;  // also refuses the commit of an update that did not begin
    stream.fail(error);
    device_->poison(checked, error, caller);
  }
}

void HostServer::sum_kept(const KeptSumming& summing, const Caller& caller) {
  HostStream& stream = device_->stream(caller.stream);
  BufferUses uses;
  try {
    stream.capture.require_none("a checksum of kept memory", caller.site);
    const detail::HostRange memory = device_->resolve(summing.memory, Access::Read, caller, uses);
    const detail::HostRange checksum = device_->resolve(summing.checksum, Access::Write, caller, uses);
    device_->submit(
        stream, uses,
        [contents = std::span<const std::byte>(memory.data, summing.bytes), to = checksum.data,
         result = KeptChecksum{summing.name, summing.epoch, 0, 0}, location = stream.location(),
         checked = device_->operation_memory(stream, uses, caller.site)]() mutable {
          checked.run(
              location,
              [&] {
                result.sum = checksum_of(contents);
                std::memcpy(to, &result, sizeof(result));
              },
              std::identity());
        },
        "checksum");
  } catch (...) {
    const std::exception_ptr error = std::current_exception();
    stream.fail(error);
    device_->poison(uses, error, caller);
  }
}

void HostServer::poison(const Binding& memory, const std::exception_ptr& cause, const Caller& caller) {
  device_->poison_one(memory, cause, caller);
}

std::shared_ptr<Communicator> HostServer::communicator(const CommunicationId& devices) {
  require_host_devices(devices);
  return Communicators::of_process().find_or_open(devices);
}

std::shared_ptr<Communicator> HostServer::renew_communicator(const CommunicationId& devices) {
  require_host_devices(devices);
  return Communicators::of_process().renew(devices);
}

// Submits at once, in every SubmitMode: the work itself takes far longer than a submission.
void HostServer::communicate(const std::shared_ptr<Communicator>& communicator, CollectiveCallList calls,
                             const Caller& caller, SubmitMode) {
  try {
    detail::queue_collective(*device_, communicator, calls, caller);
  } catch (...) {
    const std::exception_ptr error = std::current_exception();
    device_->stream(caller.stream).fail(error);
    detail::poison_destinations(*device_, calls, error, caller);
  }
}

void HostServer::sync_collective(const Caller& caller) {
  HostStream& stream = device_->stream(caller.stream);
  try {
    const auto wait = [](detail::HostDevice& device, detail::HostStream& waiting, MembershipEpoch) {
      device.wait_for(waiting, device.ranks().last_positions());
    };
    if (stream.capture.capturing()) return stream.capture.graph().add_replay_callback(wait);
    wait(*device_, stream, {});
  } catch (...) {
    stream.fail(std::current_exception());
  }
}

void HostServer::on_task_error(std::exception_ptr error, StreamId stream) {
  device_->stream(stream).fail(std::move(error));
}

void HostServer::report_failures_to(std::optional<StreamId> stream, const Caller& caller) {
  if (!stream) return device_->stream(caller.stream).reports.reset();
  HostStream& target = device_->stream(*stream);
  const auto errors = target.errors();  // keeps the target, though the next line may remove idle streams
  HostStream& helper = device_->stream(caller.stream);
  try {
    if (helper.reports == nullptr) helper.reports = std::make_shared<detail::FailureReports>();
    helper.reports->add(errors, target.failure_position());
    target.capture.require_none("work on another stream on its behalf", caller.site);
  } catch (...) {
    target.fail(std::current_exception());
  }
}

}  // namespace cox
