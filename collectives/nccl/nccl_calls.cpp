#include <coxswain/collectives/nccl/nccl_calls.hpp>

#include <coxswain/collectives/nccl/nccl_try.hpp>
#include <coxswain/collectives/nccl/nccl_types.hpp>
#include <coxswain/device_handle/thread/blocked_signals.hpp>

#include <algorithm>
#include <thread>

namespace cox::detail {
namespace {

// Operations that only move elements are issued as bytes. So are the reductions of a communicator of one rank, which
// copy, also elements of types that NCCL does not reduce.
void enqueue(NcclComm comm, std::size_t world_size, const NcclCall& call, void* scratch, CUstream_st* stream) {
  using enum CollectiveOperation;
  constexpr auto byte = NcclType::Uint8;
  const CollectiveRequest& request = call.request;
  const std::size_t bytes = request.count * element_size(request.element_type);
  if (bytes == 0 && request.operation != Barrier) return;
  const bool copies = world_size == 1;
  const std::size_t count = copies ? bytes : request.count;
  const auto type = copies ? byte : nccl_type(request.element_type).value_or(byte);
  const auto reduction = copies ? NcclReduction::Max : nccl_reduction(request.reduce_operation);
  const int root = static_cast<int>(request.root);
  const auto* const source = static_cast<const std::byte*>(call.source);
  auto* const destination = static_cast<std::byte*>(call.destination);
  switch (request.operation) {
    case AllReduce: COX_NCCL_TRY(comm, all_reduce(source, destination, count, type, reduction, comm, stream)); return;
    case Reduce: COX_NCCL_TRY(comm, reduce(source, destination, count, type, reduction, root, comm, stream)); return;
    case Broadcast: COX_NCCL_TRY(comm, broadcast(source, destination, bytes, byte, root, comm, stream)); return;
    case AllGather: COX_NCCL_TRY(comm, all_gather(source, destination, bytes, byte, comm, stream)); return;
    case ReduceScatter:
      COX_NCCL_TRY(comm, reduce_scatter(source, destination, count, type, reduction, comm, stream));
      return;
    case AllToAll:
      in_nccl_group(comm, [&] {
        for (std::size_t peer = 0; peer < world_size; ++peer) {
          COX_NCCL_TRY(comm, send(source + peer * bytes, bytes, byte, static_cast<int>(peer), comm, stream));
          COX_NCCL_TRY(comm, receive(destination + peer * bytes, bytes, byte, static_cast<int>(peer), comm, stream));
        }
      });
      return;
    case Barrier: COX_NCCL_TRY(comm, all_reduce(scratch, scratch, 1, byte, NcclReduction::Max, comm, stream)); return;
    case Send: COX_NCCL_TRY(comm, send(source, bytes, byte, root, comm, stream)); return;
    case Receive: COX_NCCL_TRY(comm, receive(destination, bytes, byte, root, comm, stream)); return;
  }
}

// Whether a rank could complete the operation before another one has begun: a rank of a reduce that only sends its data
// does not wait for the others as long as NCCL's buffers have room. The root of a broadcast does not, either, but no
// other rank reads memory there, so none can find it poisoned (see PoisonLog).
bool needs_barrier(const NcclCall& call, std::size_t world_size) noexcept {
  return world_size > 1 && call.request.operation == CollectiveOperation::Reduce && call.request.count != 0;
}

}  // namespace

// A barrier in the same group, which NCCL launches as one kernel, makes every rank wait for all others.
void launch_nccl_calls(NcclComm comm, std::size_t world_size, const NcclCalls& calls, void* scratch,
                       CUstream_st* stream) {
  const bool with_barrier =
      std::ranges::any_of(calls, [=](const NcclCall& call) { return needs_barrier(call, world_size); });
  if (calls.size() == 1 && !with_barrier) return enqueue(comm, world_size, calls.front(), scratch, stream);
  in_nccl_group(comm, [&] {
    for (const NcclCall& call : calls) enqueue(comm, world_size, call, scratch, stream);
    if (with_barrier)
      enqueue(comm, world_size, {.request = {.operation = CollectiveOperation::Barrier}}, scratch, stream);
  });
}

// One reduction, and one byte from each rank to each rank, because NCCL connects two ranks when they first exchange
// data.
void begin_connecting(const std::vector<NcclComm>& comms, std::size_t world_size, const NcclDeviceResources& opened) {
  constexpr auto byte = NcclType::Uint8;
  constexpr std::size_t half = NcclDeviceResources::scratch_size / 2;
  in_nccl_group(nullptr, [&] {
    for (std::size_t rank = 0; rank < comms.size(); ++rank) {
      void* const scratch = opened.scratch(rank);
      COX_NCCL_TRY(nullptr,
                   all_reduce(scratch, scratch, 1, byte, NcclReduction::Max, comms[rank], opened.stream(rank)));
    }
  });
  in_nccl_group(nullptr, [&] {
    for (std::size_t rank = 0; rank < comms.size(); ++rank) {
      auto* const scratch = static_cast<std::byte*>(opened.scratch(rank));
      for (std::size_t peer = 0; peer < world_size; ++peer) {
        const int other = static_cast<int>(peer);
        const std::size_t at = peer % half;
        COX_NCCL_TRY(nullptr, send(scratch + at, 1, byte, other, comms[rank], opened.stream(rank)));
        COX_NCCL_TRY(nullptr, receive(scratch + half + at, 1, byte, other, comms[rank], opened.stream(rank)));
      }
    }
  });
}

void connect_ranks(const std::vector<NcclComm>& comms, const NcclDeviceResources& opened) {
  begin_connecting(comms, comms.size(), opened);
  for (std::size_t rank = 0; rank < comms.size(); ++rank) opened.synchronize(rank);
}

void abort_communicators(const std::vector<NcclComm>& comms) noexcept {
  std::vector<std::thread> threads;
  const BlockedSignals blocked;
  const auto abort_one = [](NcclComm comm) { COX_NCCL_CHECK(nullptr, abort(comm)); };
  for (NcclComm comm : comms) {
    if (comm == nullptr) continue;
    try {
      threads.emplace_back(abort_one, comm);
    } catch (...) {
      abort_one(comm);
    }
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace cox::detail
