#pragma once

#include <coxswain/runtime/communication/collective_request.hpp>

#include <cstddef>
#include <span>

namespace cox {

/// One rank's buffers of an operation: memory of this process, contiguous unless row_bytes is set.
struct RankBuffers {
  const std::byte* source = nullptr;  ///< nullptr if the rank has no input.
  std::byte* destination = nullptr;   ///< nullptr if the rank gets no output, or gets it in another process.
  /// Only for Send and Receive: the memory consists of rows of this many bytes. May differ between the two sides; 0:
  /// dense.
  std::size_t row_bytes = 0;
  std::size_t pitch = 0;  ///< Bytes from one row to the next; 0: the rows are contiguous.
};

/// Executes share `share` of `shares` of one operation on the calling thread. Does not wait for other threads. All
/// shares together perform the operation; they may run in any order and concurrently. Each element is written by one
/// share, and no share reads what another share writes. A thread for which the return of all shares happens before sees
/// the results.
///
/// `ranks` are in the order of ranks. For a Send or Receive, which are the same here, they are the sender and the
/// receiver. Pointers are aligned for their elements. Buffers overlap only in place, where NCCL allows it: source and
/// destination are the same for AllReduce, Reduce and Broadcast; the source of AllGather is the rank's own block of its
/// destination; the destination of ReduceScatter is the rank's own block of its source.
///
/// The bits of a reduction are those of detail::reduce: computed in the order of ranks, equal on every rank and for
/// every number of shares. Preconditions: if the operation reduces, the element type can be reduced; the root is a
/// rank.
void run_share(const CollectiveRequest& request, std::span<const RankBuffers> ranks, std::size_t share,
               std::size_t shares) noexcept;

}  // namespace cox
