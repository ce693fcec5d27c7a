#include <coxswain/servers/host/server/host_device.hpp>

#include <coxswain/collectives/group/communication_groups.hpp>
#include <coxswain/device_handle/base/task_error.hpp>
#include <coxswain/runtime/base/byte_count.hpp>
#include <coxswain/runtime/buffer/memory_error.hpp>
#include <coxswain/runtime/buffer/memory_metrics.hpp>
#include <coxswain/runtime/error/io_error.hpp>
#include <coxswain/runtime/error/log.hpp>
#include <coxswain/runtime/error/server_error.hpp>

#include <new>
#include <source_location>
#include <string>
#include <utility>

namespace cox::detail {

HostDevice::HostDevice(Facts facts, const HostOptions& options)
    : facts_(std::move(facts)),
      threads_("cox-host-" + std::to_string(facts_->owner.device.index), options.threads_per_device,
               facts_->completion_thread->streams()),
      streams_(facts_->owner.device, threads_),
      communicators_(facts_->owner.device, streams_, threads_, options.threads_per_device),
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
  log::write(LogSubsystem::Host, LogLevel::Debug, [&] {
    return facts_->owner.device.to_string() + " is open: " + format_byte_count(options.memory_capacity) + ", " +
           std::to_string(options.threads_per_device) + " threads";
  });
}

HostDevice::~HostDevice() {
  communicators_.leave(facts_->owner.generation);
  streams_.for_each([](HostStream& stream) { stream.drain(); });
  // What nobody came to ask for is not lost (L12).
  streams_.for_each([this](HostStream& stream) {
    if (const auto error = stream.take_remaining_errors(std::source_location::current()))
      report_task_error({facts_->owner.device, stream.location().stream, error});
  });
  facts_->completion_thread->stop();
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

Bytes HostDevice::allocate_pinned(std::size_t size, const Caller& caller) {
  try {
    if (auto bytes = pinned_->allocate(size, {caller.site.file_name(), caller.site.line()})) return std::move(*bytes);
    throw allocation_error(location(caller), size, pinned_->report(), caller.site);
  } catch (const std::bad_alloc&) {
    throw IoError::out_of_host_memory(size, caller.site);
  }
}

HostRange HostDevice::resolve(const MemoryWindow& window, Access access, const Caller& caller, BufferUses& uses) const {
  const auto [buffer, size] = resolve_window(window, facts_->owner, caller);
#ifndef NDEBUG
  if (!memory_.is_live(buffer))
    throw IoError(IoError::Kind::StaleHandle,
                  describe_use(window, facts_->owner, caller) + ", but its memory has been freed", caller.site);
#endif
  if (!captured_writes_.empty()) [[unlikely]]
    captured_writes_.require_none(buffer, location(caller), caller.site);
  uses.push_back({&buffer, access, window.memory});
  std::byte* const data = host_pointer(buffer.address());
  return {data == nullptr ? nullptr : data + window.offset_start, size};
}

void HostDevice::submit(HostStream& stream, const BufferUses& uses, UniqueFunction<void()> work, const char* name) {
  if (stream.capture.capturing()) {
    stream.capture.graph().add(uses, std::move(work));
    for (const BufferUse& use : uses)
      if (use.access == Access::Write) captured_writes_.note(*use.buffer, stream.location().stream);
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

void HostDevice::replay(GraphId id, MembershipEpoch call_epoch, const Caller& caller) {
  const auto found = graphs_.find(id.value);
  if (found == graphs_.end())
    throw ServerError(ServerError::Kind::Graph,
                      "graph " + std::to_string(id.value) + " does not exist on " + location(caller).to_string(),
                      caller.site);
  HostStream& stream = this->stream(found->second.stream);
  stream.capture.require_none("a replay", caller.site);
  const auto graph = found->second.graph;
  for (HostGraph::Part& part : graph->parts()) {
    if (!part.steps.empty())
      submit(
          stream, part.uses,
          [graph, &part] {
            for (UniqueFunction<void()>& step : part.steps) step();
          },
          "replay");
    try {
      if (part.replay_callback) part.replay_callback(*this, stream, call_epoch);
    } catch (...) {  // of one operation: what comes behind it is queued all the same
      stream.fail(std::current_exception());
    }
  }
}

}  // namespace cox::detail
