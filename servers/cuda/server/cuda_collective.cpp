#include <coxswain/servers/cuda/server/cuda_collective.hpp>

#include <coxswain/collectives/group/communication_groups.hpp>
#include <coxswain/collectives/nccl/nccl.hpp>
#include <coxswain/device_handle/base/error.hpp>
#include <coxswain/runtime/base/access.hpp>
#include <coxswain/runtime/tensor/element_type.hpp>
#include <coxswain/servers/cuda/server/cuda_device.hpp>

#include <cstddef>
#include <utility>

namespace cox::detail {
namespace {

/// Source and destination are the same memory: the result is computed in place.
bool is_in_place(const CollectiveCall& call) noexcept {
  return call.source.memory && call.destination.memory && call.source.memory == call.destination.memory;
}

PeerRange resolve_transfer(const CudaDevice& device, const CollectiveCall& call, const Caller& caller,
                           BufferUses& uses) {
  const bool sends = call.request.operation == CollectiveOperation::Send;
  const Binding& binding = sends ? call.source : call.destination;
  PeerRange range{.address = device.resolve(binding, sends ? Access::Read : Access::Overwrite, caller, uses).address,
                  .rows = call.rows};
  if (range.rows.rows == 0) {
    const std::size_t bytes = call.request.count * element_size(call.request.element_type);
    range.rows = {.rows = 1, .row_bytes = bytes, .pitch = bytes};
  } else {
    uses.back().whole = uses.back().whole && range.rows.rows * range.rows.pitch >= uses.back().buffer->size();
  }
  return range;
}

NcclCall resolve(const CudaDevice& device, const CollectiveCall& call, const Caller& caller, BufferUses& uses) {
  const auto address = [&](const Binding& binding, Access access) {
    const CUdeviceptr found = device.resolve(binding, access, caller, uses).address;
    return reinterpret_cast<void*>(found);  // NOLINT(performance-no-int-to-ptr): a device address
  };
  NcclCall resolved{.request = call.request};
  if (call.source.memory) resolved.source = address(call.source, Access::Read);
  if (call.destination.memory)
    resolved.destination = address(call.destination, is_in_place(call) ? Access::Write : Access::Overwrite);
  return resolved;
}

/// What a rank that does not take part should have written, as far as it is memory of the device.
BufferUses destinations(const CudaDevice& device, const CollectiveCallList& calls, const Caller& caller) {
  BufferUses uses;
  for (const CollectiveCall& call : calls) {
    try {
      if (call.destination.memory && !is_of_nothing(call))
        static_cast<void>(device.resolve(call.destination, Access::Overwrite, caller, uses));
    } catch (const Error&) {  // this one could not have been written either
    }
  }
  return uses;
}

void submit(CudaDevice& device, CudaStream& stream, CudaCommunicator& communicator, const CollectiveCallList& calls,
            const Caller& caller) {
  CudaStreams& streams = device.streams();
  const bool transfers = is_transfer(calls.front().request.operation);
  CudaCollective collective;
  for (const CollectiveCall& call : calls) collective.requests.push_back(call.request);
  BufferUses uses;
  BufferUses untouched;  // of calls without elements: only their order matters
  try {
    if (!transfers) static_cast<void>(nccl());
    for (const CollectiveCall& call : calls) {
      BufferUses& its = is_of_nothing(call) ? untouched : uses;
      if (transfers) {
        collective.ranges.push_back(resolve_transfer(device, call, caller, its));
      } else {
        collective.calls.push_back(resolve(device, call, caller, its));
      }
    }
  } catch (...) {
    // The rank takes part anyway, to report the failure: the other ranks must not wait for it.
    collective.failure = std::current_exception();
    uses = destinations(device, calls, caller);
    untouched.clear();
  }
  collective.uses = OperationMemory(uses, caller.site);
  for (const BufferUse& use : untouched) uses.push_back(use);
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
    streams.add_events(waits, collective.ready.emplace());  // also flushes the launches among them
  collective.waits = std::move(waits);
  stream.collectives.prepare();
  const StreamPosition end = communicator.submit(std::move(collective), stream);
  stream.collectives.add(end);
  for (const BufferUse& use : uses) use.buffer->uses.record(use.access, end);
}

}  // namespace

void poison_destinations(CudaDevice& device, const CollectiveCallList& calls, const std::exception_ptr& error,
                         const Caller& caller) noexcept {
  for (const CollectiveCall& call : calls)
    if (call.destination.memory && !is_of_nothing(call)) device.poison_one(call.destination, error, caller);
}

void queue_collective(CudaDevice& device, CudaStream& stream, const std::shared_ptr<CommunicationGroup>& group,
                      const CollectiveCallList& calls, const Caller& caller, SubmitMode when) {
  if (stream.capture.capturing()) {
    for (const CollectiveCall& call : calls)
      if (call.destination.memory) device.note_captured_write(call.destination, caller);
    return stream.capture.graph().add_replay_callback(
        [devices = group->devices(), calls, site = caller.site](CudaDevice& its, CudaStream& replaying,
                                                                MembershipEpoch call_epoch) {
          const Caller replay{replaying.location().stream, site};
          try {
            queue_collective(its, replaying, CommunicationGroups::of_process().find_or_open(devices, call_epoch, site),
                             calls, replay, SubmitMode::Immediate);
          } catch (...) {
            poison_destinations(its, calls, std::current_exception(), replay);
            throw;
          }
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
  // The two ends of a transfer are usually submitted one by one, and wait for each other, so they are not batched.
  device.submit_to_sequencer(*communicator,
                             is_transfer(calls.front().request.operation) ? SubmitMode::Immediate : when);
  device.run_calls();
}

}  // namespace cox::detail
