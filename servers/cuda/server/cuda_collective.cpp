#include <coxswain/servers/cuda/server/cuda_collective.hpp>

#include <coxswain/collectives/communicator/communicators.hpp>
#include <coxswain/collectives/nccl/nccl.hpp>
#include <coxswain/device_handle/base/error.hpp>
#include <coxswain/runtime/base/access.hpp>
#include <coxswain/runtime/handle/recycled_memory.hpp>
#include <coxswain/runtime/tensor/element_type.hpp>
#include <coxswain/servers/cuda/collective/communication_stream.hpp>
#include <coxswain/servers/cuda/collective/cuda_transfer_launch.hpp>
#include <coxswain/servers/cuda/server/cuda_device.hpp>

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

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
  // Only the two ends know their strides, and NCCL sends contiguous memory.
  if (!call.rows.is_linear())
    throw CollectiveError(
        CollectiveError::Kind::Unsupported,
        to_string(call.request) + " refused: between GPUs of two processes only contiguous tensors are transferred",
        caller.site);
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
        static_cast<void>(device.find(call.destination, Access::Overwrite, caller, uses));
    } catch (const Error&) {  // this one could not have been written either
    }
  }
  return uses;
}

void submit(CudaDevice& device, CudaStream& stream, CudaRank& rank, const CollectiveCallList& calls,
            const Caller& caller) {
  CudaStreams& streams = device.streams();
  std::shared_ptr<CudaTransferLaunch> transfer;
  std::shared_ptr<CudaCollectiveLaunch> collective;
  std::shared_ptr<CudaRankLaunch> launch;
  if (rank.nccl_communicator() == nullptr) {
    launch = transfer = make_recycled<CudaTransferLaunch>(rank.shared_from_this());
    transfer->place = rank.place(calls.front().request);
  } else {
    launch = collective = make_recycled<CudaCollectiveLaunch>(rank.shared_from_this());
  }
  CollectiveSubmission submission;
  submission.requests.reserve(calls.size());
  for (const CollectiveCall& call : calls) submission.requests.unchecked_push_back(call.request);
  BufferUses uses;
  uses.reserve(2 * calls.size());
  BufferUses untouched;  // of calls without elements: only their order matters
  try {
    if (collective != nullptr) {
      static_cast<void>(nccl());
      collective->calls.reserve(calls.size());
    }
    for (const CollectiveCall& call : calls) {
      BufferUses& its = is_of_nothing(call) ? untouched : uses;
      if (transfer != nullptr) {
        transfer->ranges.push_back(resolve_transfer(device, call, caller, its));
      } else {
        collective->calls.push_back(resolve(device, call, caller, its));
      }
    }
  } catch (...) {
    // The rank takes part anyway, to report the failure: the other ranks must not wait for it.
    submission.failure = std::current_exception();
    uses = destinations(device, calls, caller);
    untouched.clear();
  }
  launch->memory = OperationMemory(uses, caller.site);
  for (const BufferUse& use : untouched) uses.push_back(use);
  device.follow_foreign(stream, uses, caller.site);
  launch->set_origin(stream, calls.front().request.caller.site);
  const StreamPosition end = launch->position;
  StreamPositions waits = stream.pending_waits(streams);
  waits.push_back(stream.queue().last_position());
  for (const BufferUse& use : uses) {
    use.buffer->uses.add_waits(use.access, end.stream, streams, waits);
    use.buffer->uses.prepare(streams);
  }
  rank.add_waits_of_unissued(waits);
  submission.dependencies = device.ranks().note_collective(end, waits);
  if (transfer != nullptr && submission.failure == nullptr && streams.issued(waits)) {
    std::vector<std::shared_ptr<CudaEvent>> events;
    streams.add_events(waits, events);  // also flushes the launches among them
    if (CudaTransferLaunch::has_room(streams.timeline(end.stream))) transfer->ready = std::move(events);
  }
  launch->waits = std::move(waits);
  stream.collectives.prepare();
  submission.launch = launch;
  rank.submit(std::move(submission));
  if (transfer != nullptr) transfer->check_ready();
  stream.collectives.add(end);
  for (const BufferUse& use : uses) use.buffer->uses.record(use.access, end);
}

}  // namespace

void poison_destinations(CudaDevice& device, const CollectiveCallList& calls, const std::exception_ptr& error,
                         const Caller& caller) noexcept {
  for (const CollectiveCall& call : calls)
    if (call.destination.memory && !is_of_nothing(call)) device.poison_one(call.destination, error, caller);
}

void queue_collective(CudaDevice& device, CudaStream& stream, const std::shared_ptr<Communicator>& communicator,
                      const CollectiveCallList& calls, const Caller& caller, SubmitMode when) {
  if (stream.capture.capturing()) {
    for (const CollectiveCall& call : calls)
      if (call.destination.memory) device.note_captured_write(call.destination, caller);
    return stream.capture.graph().add_replay_callback(
        [devices = communicator->devices(), calls, site = caller.site](CudaDevice& its, CudaStream& replaying,
                                                                       MembershipEpoch call_epoch) {
          const Caller replay{replaying.location().stream, site};
          try {
            queue_collective(its, replaying, Communicators::of_process().find_or_open(devices, call_epoch, site), calls,
                             replay, SubmitMode::Immediate);
          } catch (...) {
            poison_destinations(its, calls, std::current_exception(), replay);
            throw;
          }
        });
  }
  const PostQueue::HoldNotify hold = device.hold_notify();
  CudaRank* rank = nullptr;
  try {
    rank = &device.ranks().find_or_create(communicator, calls.front().request);
    submit(device, stream, *rank, calls, caller);
  } catch (...) {
    abort_pending(*communicator, rank);
  }
  // The two ends of a transfer are usually submitted one by one, and wait for each other, so they are not batched.
  device.submit_to_sequencer(*rank, is_transfer(calls.front().request.operation) ? SubmitMode::Immediate : when);
  device.run_calls();
}

}  // namespace cox::detail
