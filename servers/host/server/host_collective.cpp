#include <coxswain/servers/host/server/host_collective.hpp>

#include <coxswain/collectives/group/communication_groups.hpp>
#include <coxswain/runtime/base/access.hpp>
#include <coxswain/runtime/error/server_operation.hpp>
#include <coxswain/servers/host/server/host_device.hpp>

#include <utility>

namespace cox::detail {
namespace {

ServerOperation server_operation(CollectiveOperation operation) noexcept {
  if (operation == CollectiveOperation::Send) return ServerOperation::Send;
  return operation == CollectiveOperation::Receive ? ServerOperation::Receive : ServerOperation::AllReduce;
}

RankBuffers resolve(const HostDevice& device, const CollectiveCall& call, const Caller& caller, BufferUses& uses) {
  RankBuffers buffers{.row_bytes = call.rows.row_bytes, .pitch = call.rows.pitch};
  if (call.source.memory) buffers.source = device.resolve(call.source, Access::Read, caller, uses).data;
  if (call.destination.memory) buffers.destination = device.resolve(call.destination, Access::Write, caller, uses).data;
  return buffers;
}

void ask(HostDevice& device, HostCommunicator& communicator, const CollectiveCallList& calls, const Caller& caller) {
  HostStream& stream = device.stream(caller.stream);
  HostStreams& streams = device.streams();
  HostCollective collective;
  for (const CollectiveCall& call : calls) collective.requests.push_back(call.request);
  BufferUses uses;
  try {
    require_healthy(stream, server_operation(calls.front().request.operation), caller.site);
    for (const CollectiveCall& call : calls) collective.buffers.push_back(resolve(device, call, caller, uses));
  } catch (...) {
    // The rank comes all the same, to say so: the others must not wait for it.
    collective.failure = std::current_exception();
    uses.clear();
  }
  const StreamSlot slot = communicator.last_position().stream;
  StreamPositions waits{stream.last_position()};
  for (const BufferUse& use : uses) {
    use.buffer->uses.add_waits(use.access, slot, streams, waits);
    use.buffer->uses.prepare(streams);
  }
  CollectiveDependencyTracker awaited;
  streams.note_waits(awaited, 0, waits);
  collective.waits = streams.events(waits);
  collective.dependencies = device.communicators().dependencies(awaited);
  streams.note_collective({slot, communicator.last_position().position + 1}, awaited);
  const StreamPosition end = communicator.submit(std::move(collective), stream);
  for (const BufferUse& use : uses) use.buffer->uses.record(use.access, end);
}

}  // namespace

void queue_collective(HostDevice& device, const std::shared_ptr<CommunicationGroup>& group,
                      const CollectiveCallList& calls, const Caller& caller) {
  HostStream& stream = device.stream(caller.stream);
  if (stream.capture.capturing()) {
    for (const CollectiveCall& call : calls)
      if (call.destination.memory) device.note_captured_write(call.destination, caller);
    return stream.capture.graph().add_replay_callback(
        [devices = group->devices(), calls, site = caller.site](HostDevice& its, HostStream& replaying,
                                                                MembershipEpoch call_epoch) {
          queue_collective(its, CommunicationGroups::of_process().find_or_open(devices, call_epoch, site), calls,
                           {replaying.location().stream, site});
        });
  }
  HostCommunicator* communicator = nullptr;
  try {
    communicator = &device.communicators().find_or_create(group, calls.front().request);
    ask(device, *communicator, calls, caller);
  } catch (...) {
    abort_pending(*group, communicator);
  }
}

}  // namespace cox::detail
