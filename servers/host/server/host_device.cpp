#include <coxswain/servers/host/server/host_device.hpp>

#include <coxswain/collectives/communicator/communicators.hpp>
#include <coxswain/device_handle/base/task_error.hpp>
#include <coxswain/runtime/base/byte_count.hpp>
#include <coxswain/runtime/buffer/memory_metrics.hpp>
#include <coxswain/runtime/error/io_error.hpp>
#include <coxswain/runtime/error/log.hpp>
#include <coxswain/runtime/error/server_error.hpp>
#include <coxswain/runtime/memory/memory_report.hpp>

#include <bit>
#include <cstdint>
#include <functional>
#include <new>
#include <source_location>
#include <string>
#include <utility>

namespace cox::detail {
namespace {

void run_part(HostGraph::Part& part, std::exception_ptr& failed, const OperationMemory& memory,
              const Location& location) {
  if (failed != nullptr) return memory.set_failed(failed, MemoryFailure::Contents::Unchanged);
  try {
    memory.run(
        location,
        [&] {
          for (UniqueFunction<void()>& step : part.steps) step();
        },
        std::identity());
  } catch (...) {
    failed = std::current_exception();
    throw;
  }
}

}  // namespace

HostDevice::HostDevice(Facts facts, const HostOptions& options, ThreadContext* thread)
    : facts_(std::move(facts)),
      posts_(std::make_shared<PostQueue>(facts_->owner.device, [this] { end_borrowed(); })),
      threads_("cox-host-" + std::to_string(facts_->owner.device.index), options.threads_per_device,
               facts_->completion_thread->streams()),
      streams_(facts_->owner.device, threads_),
      ranks_(facts_->owner.device, streams_, threads_, options.threads_per_device),
      memory_(streams_, host_pool_options(options.memory_capacity, host_memory_alignment),
              host_granularity(options.memory_capacity)),
      pinned_(std::make_shared<HostPinnedMemory>(host_pool_options(options.pinned_capacity, host_pinned_alignment),
                                                 host_granularity(options.pinned_capacity))),
      metrics_(metrics::register_collector([label = facts_->owner.device.to_string(), gauge = memory_.gauge(),
                                            pinned = std::weak_ptr(pinned_)](metrics::MetricSet& set) {
        add_memory_metrics(set, {{"device", label}, {"memory", "device"}}, gauge->read());
        if (const auto memory = pinned.lock())
          add_memory_metrics(set, {{"device", label}, {"memory", "pinned"}}, memory->usage());
      })) {
  if (thread != nullptr) attach(*thread);
  log::write(LogSubsystem::Host, LogLevel::Debug, [&] {
    return facts_->owner.device.to_string() + " is open: " + format_byte_count(options.memory_capacity) + ", " +
           std::to_string(options.threads_per_device) + " threads";
  });
}

HostDevice::~HostDevice() {
  posts_->close();
  ranks_.leave(facts_->owner.generation);
  streams_.for_each([](HostStream& stream) { stream.drain(); });
  posts_->run_calls();  // releases
  // Report the errors that no call has taken, so that they are not lost (L12).
  streams_.for_each([this](HostStream& stream) {
    if (const auto error = stream.take_remaining_errors(std::source_location::current()))
      report_task_error({facts_->owner.device, stream.location().stream, error});
  });
  facts_->completion_thread->stop();
  posts_->end();
  log::write(LogSubsystem::Host, LogLevel::Debug, [&] { return facts_->owner.device.to_string() + " was shut down"; });
}

CaptureMemory::Buffer HostDevice::allocate(std::size_t size, const Caller& caller) {
  HostStream& stream = this->stream(caller.stream);
  const bool capturing = stream.capture.capturing();
  if (capturing) {
    if (auto buffer = stream.capture.take_warm_up(size)) return buffer;
  }
  try {
    if (auto buffer = memory_.allocate(
            {.bytes = size,
             .stream = stream.slot(),
             .home = stream.persistent_windows != 0 ? DeviceBuffer::Home::Persistent : DeviceBuffer::Home::Automatic,
             .growth = capturing ? Growth::Forbidden : Growth::Allowed,
             .label = {caller.site.file_name(), caller.site.line()}}))
      return buffer;
    if (capturing) throw stream.capture.no_growth(size, caller.site);
    throw allocation_error(location(caller), size, memory_.report(), caller.site);
  } catch (const std::bad_alloc&) {
    throw IoError::out_of_host_memory(size, caller.site);
  }
}

HostMemory::Buffer HostDevice::borrow(std::byte* memory, std::size_t bytes, std::shared_ptr<BorrowedMemory> owner) {
  owner->take(posts_);
  return memory_.borrow(std::bit_cast<std::uintptr_t>(memory), bytes, std::move(owner));
}

// Borrowed memory that was dropped goes back to its owner when its last use is complete. That is found out by a stream
// which waits for the uses; it is used once, so that no release waits for another one.
void HostDevice::end_borrowed() noexcept {
  try {
    memory_.end_borrowed([this](const StreamPositions& uses, const std::shared_ptr<BorrowedMemory>& owner) {
      if (uses.empty()) return owner->release();
      stream(StreamId::allocate())
          .submit(streams_.events(uses), [posts = posts_, owner] { posts->post(owner); }, "release");
    });
  } catch (...) {  // no memory: the next notification tries again
    posts_->notify();
  }
}

Bytes HostDevice::allocate_pinned(std::size_t size, const Caller& caller) {
  try {
    if (auto bytes = pinned_->allocate(size, {caller.site.file_name(), caller.site.line()})) return std::move(*bytes);
    throw allocation_error(location(caller), size, pinned_->report(), caller.site);
  } catch (const std::bad_alloc&) {
    throw IoError::out_of_host_memory(size, caller.site);
  }
}

HostRange HostDevice::find(const MemoryWindow& window, Access access, const Caller& caller, BufferUses& uses) const {
  const auto [buffer, size] = resolve_window(window, facts_->owner, caller);
#ifndef NDEBUG
  if (!memory_.is_live(buffer))
    throw IoError(IoError::Kind::StaleHandle,
                  describe_use(window, facts_->owner, caller) + ", but its memory has been freed", caller.site);
#endif
  if (!captured_writes_.empty()) [[unlikely]]
    captured_writes_.require_none(buffer, location(caller), caller.site);
  uses.push_back({&buffer, access, window.memory, size == buffer.size()});
  std::byte* const data = host_pointer(buffer.address());
  return {data == nullptr ? nullptr : data + window.offset_start, size};
}

void HostDevice::submit(HostStream& stream, const BufferUses& uses, UniqueFunction<void()> work, const char* name) {
  if (stream.capture.capturing()) {
    stream.capture.graph().add(uses, std::move(work));
    for (const BufferUse& use : uses)
      if (writes(use.access)) captured_writes_.note(*use.buffer, stream.location().stream);
    return;
  }
  if (stream.capture.preparing()) {
    for (const BufferUse& use : uses)
      if (use.memory) stream.capture.keep(ManagedMemory(use.memory));
  }
  StreamPositions waits;
  for (const BufferUse& use : uses) {
    use.buffer->uses.add_waits(use.access, stream.slot(), streams_, waits);
    use.buffer->uses.prepare(streams_);
  }
  const StreamPosition position = stream.next_position();
  streams_.note_waits(stream.awaited, position.position, waits);
  stream.submit(streams_.events(waits), std::move(work), name);
  for (const BufferUse& use : uses) use.buffer->uses.record(use.access, position);
}

void HostDevice::poison_one(const MemoryWindow& window, const std::exception_ptr& error,
                            const Caller& caller) noexcept {
  BufferUses uses;
  try {
    static_cast<void>(find(window, Access::Overwrite, caller, uses));
  } catch (...) {  // not memory of this device
    return;
  }
  poison(uses, error, caller);
}

void HostDevice::poison(const BufferUses& uses, const std::exception_ptr& error, const Caller& caller) noexcept {
  try {
    HostStream& stream = this->stream(caller.stream);
    if (stream.capture.capturing()) return;
    submit(
        stream, uses,
        [memory = OperationMemory(uses, caller.site), error] {
          memory.set_failed(error, MemoryFailure::Contents::Unchanged);
        },
        "refused");
  } catch (...) {
    // Out of memory: poison now instead of in stream order. Work that was queued before may find the memory poisoned,
    // too.
    for (const BufferUse& use : uses)
      if (writes(use.access)) use.buffer->poison.set(poison_cause(error), MemoryFailure::Contents::Unchanged);
  }
}

void HostDevice::wait_for(HostStream& stream, const StreamPositions& positions) {
  if (positions.empty()) return;
  streams_.note_waits(stream.awaited, stream.next_position().position, positions);
  stream.submit(streams_.events(positions), [] {}, "sync_collective");
}

void HostDevice::note_captured_write(const Binding& memory, const Caller& caller) {
  BufferUses uses;
  static_cast<void>(resolve(memory, Access::Write, caller, uses));
  captured_writes_.note(*uses.front().buffer, caller.stream);
}

GraphId HostDevice::end_capture(HostStream& stream, const Caller& caller) {
  stream.capture.require(CaptureState::Call::Stop, caller.site);
  captured_writes_.forget(stream.location().stream);
  auto graph = stream.capture.stop(caller.site, [](HostGraph&) {});
  const GraphId id = GraphId::next();
  graphs_.emplace(id.value, Captured{stream.location().stream, std::move(graph)});
  return id;
}

// Queues the last piece of a replay of several parts. If a part has failed by then, the piece poisons everything that
// the replay writes: the parts before the failed one have succeeded and have not poisoned their writes.
void HostDevice::poison_if_failed(HostStream& stream, const std::shared_ptr<HostGraph>& graph,
                                  const std::shared_ptr<std::exception_ptr>& failed, const Caller& caller) {
  BufferUses written;
  for (const HostGraph::Part& part : graph->parts())
    for (const BufferUse& use : part.uses)
      if (writes(use.access)) written.push_back(use);
  submit(
      stream, written,
      [graph, failed, memory = OperationMemory(written, caller.site)] {
        if (*failed != nullptr) memory.set_failed(*failed, MemoryFailure::Contents::Undefined);
      },
      "end of a replay");
}

void HostDevice::replay(GraphId id, MembershipEpoch call_epoch, const Caller& caller) {
  const auto found = graphs_.find(id.value);
  if (found == graphs_.end())
    throw ServerError(ServerError::Kind::Graph,
                      "graph " + std::to_string(id.value) + " does not exist on " + location(caller).to_string(),
                      caller.site);
  HostStream& stream = this->stream(found->second.stream);
  stream.capture.require_none("a replay", caller.site);
  const auto graph = found->second.graph;
  // A replay is one operation (L14): when a part of it fails, the later parts are not run, and all memory that the
  // replay should have written is poisoned.
  std::shared_ptr<std::exception_ptr> failed;  // accessed by one part at a time
  std::exception_ptr refusal;                  // why a part could not be queued: then no later one is
  const auto attempt = [&](auto&& queue) {
    try {
      if (refusal == nullptr) queue();
    } catch (...) {
      refusal = std::current_exception();
    }
  };
  attempt([&] { failed = std::make_shared<std::exception_ptr>(); });
  attempt([&] {
    for (const HostGraph::Part& part : graph->parts())
      for (const BufferUse& use : part.uses) require_update(use, caller.site);
  });
  for (HostGraph::Part& part : graph->parts()) {
    if (!part.steps.empty())
      attempt([&] {
        submit(
            stream, part.uses,
            [graph, &part, failed, memory = OperationMemory(part.uses, caller.site), location = stream.location()] {
              run_part(part, *failed, memory, location);
            },
            "replay");
      });
    try {
      if (part.replay_callback) part.replay_callback(*this, stream, call_epoch);
    } catch (...) {  // only this operation fails: later parts are queued
      stream.fail(std::current_exception());
    }
  }
  if (graph->parts().size() > 1) attempt([&] { poison_if_failed(stream, graph, failed, caller); });
  if (refusal == nullptr) return;
  stream.fail(refusal);
  for (const HostGraph::Part& part : graph->parts()) poison(part.uses, refusal, caller);
}

}  // namespace cox::detail
