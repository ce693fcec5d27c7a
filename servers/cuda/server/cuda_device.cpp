#include <coxswain/servers/cuda/server/cuda_device.hpp>

#include <coxswain/collectives/communicator/communicators.hpp>
#include <coxswain/device_handle/base/task_error.hpp>
#include <coxswain/device_handle/service/thread_context.hpp>
#include <coxswain/runtime/base/byte_count.hpp>
#include <coxswain/runtime/buffer/memory_metrics.hpp>
#include <coxswain/runtime/config/process_settings.hpp>
#include <coxswain/runtime/error/io_error.hpp>
#include <coxswain/runtime/error/log.hpp>
#include <coxswain/runtime/error/server_error.hpp>
#include <coxswain/runtime/memory/memory_report.hpp>
#include <coxswain/servers/cuda/driver/cuda_try.hpp>
#include <coxswain/servers/cuda/kernel/empty_kernel.hpp>

#include <new>
#include <optional>
#include <source_location>
#include <string>
#include <thread>
#include <utility>

namespace cox::detail {
namespace {

std::string thread_name(const char* what, DeviceId device) {
  return std::string("cox-") + what + "-" + std::to_string(device.index);
}

CudaStreamOptions stream_options() {
  const Settings now = settings();
  return {.streams = now.get<std::uint64_t>("cuda.streams"),
          .in_flight = now.get<std::uint64_t>("cuda.launches_in_flight"),
          .launches_at_a_time = now.get<std::uint64_t>("cuda.launches_at_a_time")};
}

// Null if it cannot be loaded.
CUfunction empty_kernel(DeviceId device, const CudaContext& context) {
  try {
    return load_empty_kernel({context.attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
                              context.attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)});
  } catch (const Error& error) {
    log::write(LogSubsystem::Cuda, LogLevel::Warn, [&] {
      return device.to_string() + " launches kernels one by one, which takes longer: " + error.what();
    });
    return nullptr;
  }
}

MemoryPoolOptions pinned_options() {
  return {.alignment = cuda_pinned_alignment,
          .capacity = settings().get<std::uint64_t>("cuda.pinned_memory"),
          .address_space = 0};
}

}  // namespace

CudaDevice::CudaDevice(Facts facts, std::shared_ptr<CudaContext> context, ThreadContext* thread)
    : facts_(std::move(facts)),
      context_(std::move(context)),
      poller_(std::make_shared<CudaPoller>(thread_name("poll", facts_->owner.device))),
      events_(std::make_shared<CudaEvents>(context_, poller_, CudaEvents::Timing::Off)),
      timed_events_(std::make_shared<CudaEvents>(context_, poller_, CudaEvents::Timing::On)),
      posts_(std::make_shared<PostQueue>(facts_->owner.device,
                                         [this] {
                                           if (!gpu_faulted()) COX_CUDA_CHECK(context_set_current(context_->native()));
                                           streams_.on_notify();
                                           advance();
                                         })),
      streams_(facts_->owner.device, events_, posts_, stream_options()),
      engine_(thread_name("copy", facts_->owner.device), events_,
              {.threads = settings().get<std::uint64_t>("cuda.copy_threads")}),
      transfers_(streams_, engine_, posts_),
      ranks_(facts_->owner.device, streams_, posts_),
      memory_(open_cuda_memory(streams_, facts_->properties.memory, context_)),
      pinned_(std::make_shared<CudaPinnedMemory>(pinned_options(), context_)),
      results_(std::make_shared<CudaPinnedMemory>(pinned_options(), context_)),
      metrics_(metrics::register_collector([label = facts_->owner.device.to_string(), gauge = memory_->gauge(),
                                            pinned = std::weak_ptr(pinned_),
                                            results = std::weak_ptr(results_)](metrics::MetricSet& set) {
        add_memory_metrics(set, {{"device", label}, {"memory", "device"}}, gauge->read());
        if (const auto memory = pinned.lock())
          add_memory_metrics(set, {{"device", label}, {"memory", "pinned"}}, memory->usage());
        if (const auto memory = results.lock())
          add_memory_metrics(set, {{"device", label}, {"memory", "results"}}, memory->usage());
      })),
      fault_listener_([this](std::vector<GpuFault::Suspect>& suspects) { streams_.add_suspects(suspects); },
                      [posts = posts_] { posts->notify(); }) {
  kept_.reserve(16);
  {
    const RelaxedCapture relaxed;
    streams_.open(empty_kernel(facts_->owner.device, *context_));
  }
  COX_CUDA_TRY(stream_create(capture_stream_.out(), CU_STREAM_NON_BLOCKING, 0));
  if (thread != nullptr) attach(*thread);
  log::write(LogSubsystem::Cuda, LogLevel::Debug, [&] {
    return facts_->owner.device.to_string() + " is open: " + facts_->properties.name + ", " +
           format_byte_count(facts_->properties.memory.capacity);
  });
}

CudaDevice::~CudaDevice() {
  if (!gpu_faulted()) COX_CUDA_CHECK(context_set_current(context_->native()));
  posts_->close();
  ranks_.leave(facts_->owner.generation, [this] {
    streams_.on_notify();
    advance();
    streams_.poll();
  });
  drain();
  ranks_.close();
  streams_.poison_log()->clear();
  // Errors that no call has taken are reported, not lost (L12).
  streams_.for_each([this](CudaStream& stream) {
    if (const auto error = stream.take_remaining_errors(std::source_location::current()))
      report_task_error({facts_->owner.device, stream.location().stream, error});
  });
  graphs_.clear();
  poller_->stop();
  engine_.stop();
  capture_stream_.reset();
  facts_->completion_thread->stop();
  posts_->end();
  log::write(LogSubsystem::Cuda, LogLevel::Debug, [&] { return facts_->owner.device.to_string() + " was shut down"; });
}

// Issues all pending work and waits for it. This includes copies to memory of this device that run on streams of other
// devices.
void CudaDevice::drain() noexcept {
  while (streams_.has_pending() || transfers_.in_flight() || ranks_.copies_in_flight()) {
    streams_.on_notify();
    advance();
    streams_.poll();
    std::this_thread::yield();
  }
  streams_.synchronize();
}

void CudaDevice::attach(ThreadContext& thread) {
  if (!gpu_faulted()) RelaxedCapture::of_thread();
  posts_->attach(thread);
  watch_.attach(thread);
  thread_ = &thread;
  // Clients submit again when their earlier work has completed, which takes milliseconds. If the thread is asleep by
  // then, waking it takes tens of microseconds.
  thread.spin_at_least(settings().get<std::chrono::nanoseconds>("cuda.device_thread_spin"));
}

void CudaDevice::run_calls() noexcept {
  try {
    if (posts_->run_calls()) advance();
  } catch (...) {
    report_task_error({facts_->owner.device, StreamId::current(), std::current_exception()});
  }
}

void CudaDevice::submit_to_sequencer(CudaRank& rank, SubmitMode when) noexcept {
  if (batching_.get() != &rank) submit_batched();
  if (when == SubmitMode::Immediate || rank.batch_full() || rank.begins_stream() || !request_batch_end())
    return rank.submit_to_sequencer();
  batching_ = rank.shared_from_this();
}

void CudaDevice::flush_launches(SubmitMode when) noexcept {
  if (!streams_.has_launches() || (when == SubmitMode::Batched && request_batch_end())) return;
  streams_.flush_launches();
}

void CudaDevice::end_batch() noexcept {
  if (streams_.has_launches()) {
    if (!gpu_faulted()) COX_CUDA_CHECK(context_set_current(context_->native()));  // a task may have changed it
    streams_.flush_launches();
  }
  submit_batched();
}

void CudaDevice::submit_batched() noexcept {
  if (batching_ == nullptr) return;
  const PostQueue::HoldNotify hold = hold_notify();
  std::exchange(batching_, nullptr)->submit_to_sequencer();
  run_calls();
}

// Borrowed memory that was dropped goes back to its owner when its last use is complete.
void CudaDevice::end_borrowed() noexcept {
  if (!memory_->has_borrowed()) return;
  try {
    memory_->end_borrowed([this](const StreamPositions& uses, const std::shared_ptr<BorrowedMemory>& owner) {
      streams_.when_complete(uses, [this, owner] {
        const CurrentContext current(*context_);  // the owner's code may make another one current
        owner->release();
      });
    });
  } catch (...) {  // no memory: the next notification tries again
    posts_->notify();
  }
}

void CudaDevice::advance() {
  end_borrowed();
  streams_.poison_log()->trim(streams_);
  if (gpu_faulted()) {
    transfers_.abandon();
    streams_.abandon();
  }
  for (bool any = true; any;) {
    any = posts_->run_calls();
    any = transfers_.advance() || any;
    any = streams_.advance() || any;  // also flushes launches that the calls have added
  }
}

CudaMemory::Buffer CudaDevice::try_allocate(const MemoryRequest& request) {
  // Memory of work that has completed is free, but polling for it costs more than an allocation.
  constexpr std::chrono::microseconds interval{50};
  const auto now = std::chrono::steady_clock::now();
  if (now - polled_ > interval) {
    streams_.poll();
    polled_ = now;
  }
  if (auto buffer = memory_->allocate(request)) return buffer;
  streams_.poll();
  return memory_->allocate(request);
}

CaptureMemory::Buffer CudaDevice::allocate(std::size_t size, const Caller& caller) {
  CudaStream& stream = streams_.find_or_create(caller.stream);
  const bool capturing = stream.capture.capturing();
  if (capturing) {
    if (auto buffer = stream.capture.take_warm_up(size)) return buffer;
  }
  try {
    if (auto buffer = try_allocate(
            {.bytes = size,
             .stream = stream.slot(),
             .home = stream.persistent_windows != 0 ? DeviceBuffer::Home::Persistent : DeviceBuffer::Home::Automatic,
             .growth = capturing ? Growth::Forbidden : Growth::Allowed,
             .label = {caller.site.file_name(), caller.site.line()}}))
      return buffer;
    if (capturing) throw stream.capture.no_growth(size, caller.site);
    throw allocation_error(location(caller), size, memory_->report(), caller.site);
  } catch (const std::bad_alloc&) {
    throw IoError::out_of_host_memory(size, caller.site);
  }
}

Bytes CudaDevice::allocate_pinned(std::size_t size, const Caller& caller) {
  try {
    const MemoryLabel label{caller.site.file_name(), caller.site.line()};
    if (auto bytes = pinned_->allocate(size, label)) return std::move(*bytes);
    streams_.poll();  // releases page-locked memory of completed work
    small_reads_.clear();
    if (auto bytes = pinned_->allocate(size, label)) return std::move(*bytes);
    throw allocation_error(location(caller), size, pinned_->report(), caller.site);
  } catch (const std::bad_alloc&) {
    throw IoError::out_of_host_memory(size, caller.site);
  }
}

void CudaDevice::require_not_captured(const DeviceBuffer& buffer, const Caller& caller) const {
  captured_writes_.require_none(buffer, location(caller), caller.site);
}

StreamPositions CudaDevice::waits_of(CudaStream& stream, const BufferUses& uses) {
  if (stream.capture.preparing()) {
    for (const BufferUse& use : uses)
      if (use.memory) stream.capture.keep(ManagedMemory(use.memory));
  }
  StreamPositions waits = stream.pending_waits(streams_);
  for (const BufferUse& use : uses) {
    use.buffer->uses.add_waits(use.access, stream.slot(), streams_, waits);
    use.buffer->uses.prepare(streams_);
  }
  return waits;
}

StreamPositions CudaDevice::waits_for_all(CudaStream& stream, const BufferUses& uses) {
  StreamPositions waits = waits_of(stream, uses);
  for (const StreamPosition& transfer : stream.transfers(streams_)) waits.push_back(transfer);
  return waits;
}

void CudaDevice::transfer(CudaStream& stream, const BufferUses& uses, CopyTask task) {
  follow_foreign(stream, uses, std::source_location::current());
  const StreamSlot slot = transfers_.next_slot();
  StreamPositions waits;
  for (const BufferUse& use : uses) {
    use.buffer->uses.add_waits(use.access, slot, streams_, waits);
    use.buffer->uses.prepare(streams_);
    if (stream.capture.preparing() && use.memory) stream.capture.keep(ManagedMemory(use.memory));
  }
  stream.make_room_for_transfer();
  const StreamPosition position = transfers_.begin(waits, std::move(task));
  stream.add_transfer(position);
  for (const BufferUse& use : uses) use.buffer->uses.record(use.access, position);
  ranks_.note_waits(position, waits);
}

void CudaDevice::poison_one(const MemoryWindow& window, const std::exception_ptr& error,
                            const Caller& caller) noexcept {
  BufferUses uses;
  try {
    static_cast<void>(find(window, Access::Overwrite, caller, uses));
  } catch (...) {  // not memory of this device
    return;
  }
  poison(uses, error, caller);
}

void CudaDevice::poison(const BufferUses& uses, const std::exception_ptr& error, const Caller& caller) noexcept {
  const std::shared_ptr<PoisonLog>& log = streams_.poison_log();
  try {
    CudaStream& stream = streams_.find_or_create(caller.stream);
    if (stream.capture.capturing()) return;
    submit_unchecked(stream, uses, {nullptr, nullptr, caller.site},
                     [log, memory = OperationMemory(uses, caller.site), error](const IssueTarget& target) {
                       target.flush_launches();
                       log->set_failed(memory.uses(), error, MemoryFailure::Contents::Unchanged);
                     });
  } catch (...) {  // not in stream order then: earlier work may find it poisoned, too
    log->set_failed(uses, error, MemoryFailure::Contents::Unchanged);
  }
}

// There is room for one more, except after memory could not be had.
void CudaDevice::keep(const MemoryView& memory) noexcept {
  if (!is_pooled(memory)) return;
  if (kept_.size() == kept_.capacity())
    return static_cast<void>(ManagedMemory(memory).release());  // a reference that is never dropped
  kept_.emplace_back(memory);
  try {
    if (kept_.size() == kept_.capacity()) kept_.reserve(2 * kept_.size());
  } catch (const std::bad_alloc&) {  // this one has been kept
  }
}

void CudaDevice::clear_pending_waits(CudaStream& stream, const Caller& caller) {
  if (stream.capture.capturing() || stream.pending_waits(streams_).empty()) return;
  submit(stream, {}, {nullptr, nullptr, caller.site}, [](const IssueTarget&) {});
}

void CudaDevice::capture(CudaStream& stream, const BufferUses& uses, CudaIssue step) {
  stream.capture.graph().add(uses, std::move(step));
  for (const BufferUse& use : uses)
    if (writes(use.access)) captured_writes_.note(*use.buffer, stream.location().stream);
}

void CudaDevice::note_captured_write(const Binding& memory, const Caller& caller) {
  BufferUses uses;
  static_cast<void>(resolve(memory, Access::Write, caller, uses));
  captured_writes_.note(*uses.front().buffer, caller.stream);
}

GraphId CudaDevice::end_capture(CudaStream& stream, const Caller& caller) {
  stream.capture.require(CaptureState::Call::Stop, caller.site);
  captured_writes_.forget(stream.location().stream);
  auto graph =
      stream.capture.stop(caller.site, [this](CudaGraph& made) { made.finish(capture_stream_.get(), context_); });
  const GraphId id = GraphId::next();
  graphs_.emplace(id.value, Captured{stream.location().stream, std::move(graph)});
  return id;
}

std::shared_ptr<PartGraphs> CudaDevice::part_graphs(GraphId id) const noexcept {
  const auto found = graphs_.find(id.value);
  return found == graphs_.end() ? nullptr : found->second.graph->natives();
}

void CudaDevice::replay(GraphId id, MembershipEpoch call_epoch, const Caller& caller) {
  const auto found = graphs_.find(id.value);
  if (found == graphs_.end())
    throw ServerError(ServerError::Kind::Graph,
                      "graph " + std::to_string(id.value) + " does not exist on " + location(caller).to_string(),
                      caller.site);
  CudaStream& stream = streams_.find_or_create(found->second.stream);
  stream.capture.require_none("a replay", caller.site);
  const auto graph = found->second.graph;
  const OperationName name{"replay", nullptr, caller.site};
  // A replay is one operation (L14): if a part of it fails, later parts are not run, and everything that the replay
  // should have written is poisoned.
  std::shared_ptr<std::exception_ptr> failed;  // device thread; null: the graph has one part, or nothing can be queued
  std::exception_ptr refusal;
  try {
    if (!graph->has_one_part()) failed = std::make_shared<std::exception_ptr>();
    graph->for_each_use([&](const BufferUse& use) { require_update(use, caller.site); });
    graph->natives()->instantiate();
  } catch (...) {
    refusal = std::current_exception();
    stream.fail(refusal);
  }
  graph->replay(
      [&](CUgraphExec native, const BufferUses& uses) {
        if (refusal != nullptr) return poison(uses, refusal, caller);
        const auto launch = [graph, native, site = caller.site](const IssueTarget& target) {
          if (gpu_faulted()) throw_gpu_fault(site);
          COX_CUDA_TRY(graph_launch(native, target.stream()));
        };
        try {
          if (failed == nullptr) return submit(stream, uses, name, launch);
          submit_unchecked(stream, uses, name,
                           [this, owner = stream.shared_from_this(), sequence = stream.next_sequence(), name, launch,
                            failed, memory = OperationMemory(uses, caller.site)](const IssueTarget&) {
                             issue_part(*owner, sequence, name, launch, *failed, memory);
                           });
        } catch (...) {
          if (failed != nullptr) *failed = std::current_exception();
          stream.fail(std::current_exception());
          poison(uses, std::current_exception(), caller);
        }
      },
      [&](CudaReplayCallback& replay_callback) {
        try {
          replay_callback(*this, stream, call_epoch);
        } catch (...) {  // one operation has failed; later ones are queued all the same
          stream.fail(std::current_exception());
        }
      });
  if (failed == nullptr || (*failed == nullptr && stream.queue().pending.empty())) return;
  // Also poison what the parts before a failed part have written: they have succeeded themselves.
  BufferUses written;
  graph->for_each_use([&](const BufferUse& use) {
    if (writes(use.access)) written.push_back(use);
  });
  try {
    submit_unchecked(stream, written, {nullptr, nullptr, caller.site},
                     [graph, failed, log = streams_.poison_log(),
                      memory = OperationMemory(written, caller.site)](const IssueTarget& target) {
                       if (*failed == nullptr) return;
                       target.flush_launches();
                       log->set_failed(memory.uses(), *failed, MemoryFailure::Contents::Undefined);
                     });
  } catch (...) {
    if (*failed == nullptr) throw;
    streams_.poison_log()->set_failed(written, *failed, MemoryFailure::Contents::Undefined);
  }
}

template <class Launch>
void CudaDevice::issue_part(CudaStream& stream, std::uint64_t sequence, const OperationName& name, const Launch& launch,
                            std::exception_ptr& failed, const OperationMemory& memory) {
  if (failed != nullptr) {
    stream.queue().target().flush_launches();
    return streams_.poison_log()->set_failed(memory.uses(), failed, MemoryFailure::Contents::Unchanged);
  }
  try {
    streams_.issue_checked(stream, memory.uses(), name, {}, launch, sequence);
  } catch (...) {
    failed = std::current_exception();
    throw;
  }
}

void CudaDevice::remove_graph(GraphId id) {
  const auto found = graphs_.find(id.value);
  if (found == graphs_.end()) return;
  // Replays may be in flight, or pending. The host memory that they copy from is released after them, in stream order;
  // device memory is always freed in stream order.
  CudaStream& stream = streams_.find_or_create(found->second.stream);
  static_cast<void>(streams_.submit(
      stream, {}, {nullptr, nullptr, std::source_location::current()},
      [graph = found->second.graph](const IssueTarget& target) { graph->release_host_memory(target); }, nullptr,
      PieceKind::Notice));
  graphs_.erase(found);
}

}  // namespace cox::detail
