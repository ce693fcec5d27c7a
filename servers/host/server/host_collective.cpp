#include <coxswain/servers/host/server/host_collective.hpp>

#include <coxswain/collectives/communicator/communicators.hpp>
#include <coxswain/runtime/base/access.hpp>
#include <coxswain/servers/host/server/host_device.hpp>

#include <cstddef>
#include <memory>
#include <utility>

namespace cox::detail {
namespace {

/// Whether source and destination are the same memory, so that the result replaces the input.
bool is_in_place(const CollectiveCall& call) noexcept {
  return call.source.memory && call.destination.memory && call.source.memory == call.destination.memory;
}

RankBuffers resolve(const HostDevice& device, const CollectiveCall& call, const Caller& caller, BufferUses& uses) {
  RankBuffers buffers{.row_bytes = call.rows.row_bytes, .pitch = call.rows.pitch};
  if (call.source.memory) buffers.source = device.resolve(call.source, Access::Read, caller, uses).data;
  if (call.destination.memory) {
    buffers.destination =
        device.resolve(call.destination, is_in_place(call) ? Access::Write : Access::Overwrite, caller, uses).data;
    if (call.rows.rows != 0)
      uses.back().whole = uses.back().whole && call.rows.rows * call.rows.pitch >= uses.back().buffer->size();
  }
  return buffers;
}

/// The memory of the device that a rank which cannot take part should have written.
BufferUses destinations(const HostDevice& device, const CollectiveCallList& calls, const Caller& caller) {
  BufferUses uses;
  for (const CollectiveCall& call : calls) {
    try {
      if (call.destination.memory && !is_of_nothing(call))
        static_cast<void>(device.find(call.destination, Access::Overwrite, caller, uses));
    } catch (const Error&) {  // this destination is no memory of the device
    }
  }
  return uses;
}

void submit(HostDevice& device, HostRank& rank, const CollectiveCallList& calls, const Caller& caller) {
  HostStream& stream = device.stream(caller.stream);
  HostStreams& streams = device.streams();
  const auto launch = std::make_shared<HostRankLaunch>(rank.shared_from_this());
  CollectiveSubmission submission;
  for (const CollectiveCall& call : calls) submission.requests.push_back(call.request);
  BufferUses uses;
  BufferUses moved;  // those of `uses` whose bytes are read or written
  try {
    for (const CollectiveCall& call : calls) {
      const std::size_t before = uses.size();
      launch->buffers.push_back(resolve(device, call, caller, uses));
      for (std::size_t i = before; i < uses.size() && !is_of_nothing(call); ++i) moved.push_back(uses[i]);
    }
  } catch (...) {
    // Submit the failure: otherwise the other ranks would wait for this one.
    submission.failure = std::current_exception();
    uses = moved = destinations(device, calls, caller);
  }
  launch->memory = OperationMemory(moved, caller.site);
  const StreamPosition last = rank.last_position();
  StreamPositions waits{stream.last_position()};
  for (const BufferUse& use : uses) {
    // Also for earlier operations of this rank: one that is refused is not on the communication stream.
    use.buffer->uses.add_waits(use.access, no_stream, streams, waits);
    use.buffer->uses.prepare(streams);
  }
  CollectiveDependencyTracker awaited;
  streams.note_waits(awaited, 0, waits);
  launch->waits = streams.events(waits);
  submission.dependencies = device.ranks().dependencies(awaited);
  streams.note_collective({last.stream, last.position + 1}, awaited);
  stream.collectives.prepare();
  const StreamPosition end = rank.submit(std::move(submission), launch, stream);
  stream.collectives.add(end);
  for (const BufferUse& use : uses) use.buffer->uses.record(use.access, end);
}

}  // namespace

void poison_destinations(HostDevice& device, const CollectiveCallList& calls, const std::exception_ptr& error,
                         const Caller& caller) noexcept {
  for (const CollectiveCall& call : calls)
    if (call.destination.memory && !is_of_nothing(call)) device.poison_one(call.destination, error, caller);
}

void queue_collective(HostDevice& device, const std::shared_ptr<Communicator>& communicator,
                      const CollectiveCallList& calls, const Caller& caller) {
  HostStream& stream = device.stream(caller.stream);
  if (stream.capture.capturing()) {
    for (const CollectiveCall& call : calls)
      if (call.destination.memory) device.note_captured_write(call.destination, caller);
    return stream.capture.graph().add_replay_callback(
        [devices = communicator->devices(), calls, site = caller.site](HostDevice& its, HostStream& replaying,
                                                                       MembershipEpoch call_epoch) {
          const Caller replay{replaying.location().stream, site};
          try {
            queue_collective(its, Communicators::of_process().find_or_open(devices, call_epoch, site), calls, replay);
          } catch (...) {
            poison_destinations(its, calls, std::current_exception(), replay);
            throw;
          }
        });
  }
  HostRank* rank = nullptr;
  try {
    rank = &device.ranks().find_or_create(communicator, calls.front().request);
    submit(device, *rank, calls, caller);
  } catch (...) {
    abort_pending(*communicator, rank);
  }
}

}  // namespace cox::detail
