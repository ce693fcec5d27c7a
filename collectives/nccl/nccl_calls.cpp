#include <coxswain/collectives/nccl/nccl_calls.hpp>

#include <coxswain/collectives/nccl/nccl_try.hpp>
#include <coxswain/collectives/nccl/nccl_types.hpp>
#include <coxswain/runtime/communication/collective_error.hpp>

namespace cox::detail {
namespace {

// Operations that only move elements are issued as bytes.
void enqueue(NcclComm comm, std::size_t world_size, const NcclCall& call, void* scratch, CUstream_st* stream) {
  using enum CollectiveOperation;
  constexpr auto byte = NcclType::Uint8;
  const CollectiveRequest& request = call.request;
  const std::size_t bytes = request.count * element_size(request.element_type);
  if (bytes == 0 && request.operation != Barrier) return;
  const auto type = nccl_type(request.element_type).value_or(byte);
  const auto reduction = nccl_reduction(request.reduce_operation);
  const int root = static_cast<int>(request.root);
  const auto* const source = static_cast<const std::byte*>(call.source);
  auto* const destination = static_cast<std::byte*>(call.destination);
  switch (request.operation) {
    case AllReduce:
      COX_NCCL_TRY(comm, all_reduce(source, destination, request.count, type, reduction, comm, stream));
      return;
    case Reduce:
      COX_NCCL_TRY(comm, reduce(source, destination, request.count, type, reduction, root, comm, stream));
      return;
    case Broadcast: COX_NCCL_TRY(comm, broadcast(source, destination, bytes, byte, root, comm, stream)); return;
    case AllGather: COX_NCCL_TRY(comm, all_gather(source, destination, bytes, byte, comm, stream)); return;
    case ReduceScatter:
      COX_NCCL_TRY(comm, reduce_scatter(source, destination, request.count, type, reduction, comm, stream));
      return;
    case AllToAll:
      COX_NCCL_TRY(comm, group_start());
      for (std::size_t peer = 0; peer < world_size; ++peer) {
        COX_NCCL_TRY(comm, send(source + peer * bytes, bytes, byte, static_cast<int>(peer), comm, stream));
        COX_NCCL_TRY(comm, receive(destination + peer * bytes, bytes, byte, static_cast<int>(peer), comm, stream));
      }
      COX_NCCL_TRY(comm, group_end());
      return;
    case Barrier: COX_NCCL_TRY(comm, all_reduce(scratch, scratch, 1, byte, NcclReduction::Max, comm, stream)); return;
    case Send:
    case Receive: break;
  }
  throw CollectiveError(CollectiveError::Kind::Unsupported,
                        "NCCL is not used for transfers between GPUs: they are peer copies", std::source_location());
}

}  // namespace

void launch_nccl_calls(NcclComm comm, std::size_t world_size, const NcclCalls& calls, void* scratch,
                       CUstream_st* stream) {
  if (calls.size() == 1) return enqueue(comm, world_size, calls.front(), scratch, stream);
  COX_NCCL_TRY(comm, group_start());
  try {
    for (const NcclCall& call : calls) enqueue(comm, world_size, call, scratch, stream);
  } catch (...) {
    static_cast<void>(nccl().group_end());  // it would return the same error
    throw;
  }
  COX_NCCL_TRY(comm, group_end());
}

// One reduction, and one byte from each rank to each rank, because NCCL connects two ranks when they first exchange
// data.
void connect_ranks(const std::vector<NcclComm>& comms, const NcclDeviceResources& opened) {
  constexpr auto byte = NcclType::Uint8;
  constexpr std::size_t half = NcclDeviceResources::scratch_size / 2;
  const std::size_t ranks = comms.size();
  COX_NCCL_TRY(nullptr, group_start());
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    void* const scratch = opened.scratch(rank);
    COX_NCCL_TRY(nullptr, all_reduce(scratch, scratch, 1, byte, NcclReduction::Max, comms[rank], opened.stream(rank)));
  }
  COX_NCCL_TRY(nullptr, group_end());
  COX_NCCL_TRY(nullptr, group_start());
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    auto* const scratch = static_cast<std::byte*>(opened.scratch(rank));
    for (std::size_t peer = 0; peer < ranks; ++peer) {
      const int other = static_cast<int>(peer);
      const std::size_t at = peer % half;
      COX_NCCL_TRY(nullptr, send(scratch + at, 1, byte, other, comms[rank], opened.stream(rank)));
      COX_NCCL_TRY(nullptr, receive(scratch + half + at, 1, byte, other, comms[rank], opened.stream(rank)));
    }
  }
  COX_NCCL_TRY(nullptr, group_end());
  for (std::size_t rank = 0; rank < ranks; ++rank) opened.synchronize(rank);
}

}  // namespace cox::detail
