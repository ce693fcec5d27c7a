#include <coxswain/servers/cuda/server/cuda_collective.hpp>

#include <coxswain/collectives/group/communication_groups.hpp>
#include <coxswain/collectives/nccl/nccl.hpp>
#include <coxswain/runtime/base/access.hpp>
#include <coxswain/runtime/communication/collective_error.hpp>
#include <coxswain/runtime/error/server_operation.hpp>
#include <coxswain/runtime/tensor/element_type.hpp>
#include <coxswain/servers/cuda/server/cuda_device.hpp>

#include <string>
#include <utility>

namespace cox::detail {
namespace {

ServerOperation server_operation(CollectiveOperation operation) noexcept {
  if (operation == CollectiveOperation::Send) return ServerOperation::Send;
  return operation == CollectiveOperation::Receive ? ServerOperation::Receive : ServerOperation::AllReduce;
}

PeerRange resolve_transfer(const CudaDevice& device, const CollectiveCall& call, const Caller& caller,
                           BufferUses& uses) {
  const bool sends = call.request.operation == CollectiveOperation::Send;
  const Binding& binding = sends ? call.source : call.destination;
  PeerRange range{.address = device.resolve(binding, sends ? Access::Read : Access::Write, caller, uses).address,
                  .rows = call.rows};
  if (range.rows.rows == 0) {
    const std::size_t bytes = call.request.count * element_size(call.request.element_type);
    range.rows = {.rows = 1, .row_bytes = bytes, .pitch = bytes};
  }
  return range;
}

NcclCall resolve(const CudaDevice& device, const CollectiveCall& call, const Caller& caller, BufferUses& uses) {
  const auto address = [&](const Binding& binding, Access access) {
    const CUdeviceptr found = device.resolve(binding, access, caller, uses).address;
    return reinterpret_cast<void*>(found);  // NOLINT(performance-no-int-to-ptr): an address of the device
  };
  NcclCall resolved{.request = call.request};
  if (call.source.memory) resolved.source = address(call.source, Access::Read);
  if (call.destination.memory) resolved.destination = address(call.destination, Access::Write);
  return resolved;
}

void submit(CudaDevice& device, CudaStream& stream, CudaCommunicator& communicator, const CollectiveCallList& calls,
            const Caller& caller) {
  CudaStreams& streams = device.streams();
  const bool transfers = is_transfer(calls.front().request.operation);
  CudaCollective collective;
  for (const CollectiveCall& call : calls) collective.requests.push_back(call.request);
  BufferUses uses;
  try {
    if (!transfers) static_cast<void>(nccl());
    require_healthy(stream, server_operation(calls.front().request.operation), caller.site);
    for (const CollectiveCall& call : calls) {
      if (transfers) {
        collective.memory.push_back(resolve_transfer(device, call, caller, uses));
      } else {
        collective.calls.push_back(resolve(device, call, caller, uses));
      }
    }
  } catch (...) {
    // The rank comes all the same, to say so: the others must not wait for it.
    collective.failure = std::current_exception();
    uses.clear();
  }
  const StreamSlot slot = communicator.last_position().stream;
  StreamPositions waits = stream.pending_waits(streams);
  waits.push_back(stream.queue().last_position());
  for (const BufferUse& use : uses) {
    use.buffer->uses.add_waits(use.access, slot, streams, waits);
    use.buffer->uses.prepare(streams);
  }
  const StreamPosition next{slot, communicator.last_position().position + 1};
  collective.dependencies = device.communicators().note_collective(next, waits);
  if (transfers && collective.failure == nullptr && streams.issued(waits))
    streams.add_events(waits, collective.ready.emplace());
  collective.waits = std::move(waits);
  const StreamPosition end = communicator.submit(std::move(collective), stream);
  for (const BufferUse& use : uses) use.buffer->uses.record(use.access, end);
}

}  // namespace

void queue_collective(CudaDevice& device, CudaStream& stream, const std::shared_ptr<CommunicationGroup>& group,
                      const CollectiveCallList& calls, const Caller& caller, SubmitMode when) {
  if (stream.capture.capturing()) {
    for (const CollectiveCall& call : calls)
      if (call.destination.memory) device.note_captured_write(call.destination, caller);
    return stream.capture.graph().add_replay_callback(
        [devices = group->devices(), calls, site = caller.site](CudaDevice& its, CudaStream& replaying,
                                                                MembershipEpoch call_epoch) {
          queue_collective(its, replaying, CommunicationGroups::of_process().find_or_open(devices, call_epoch, site),
                           calls, {replaying.location().stream, site}, SubmitMode::Immediate);
        });
  }
  const PostQueue::HoldNotify hold = device.hold_notify();
  CudaCommunicator* communicator = nullptr;
  try {
    communicator = &device.communicators().find_or_create(group, calls.front().request);
    submit(device, stream, *communicator, calls, caller);
  } catch (...) {
    abort_pending(*group, communicator);
  }
  // Both ends of a transfer are asked for one by one as a rule, and wait for each other.
  device.submit_to_sequencer(*communicator,
                             is_transfer(calls.front().request.operation) ? SubmitMode::Immediate : when);
  device.run_calls();
}

}  // namespace cox::detail
