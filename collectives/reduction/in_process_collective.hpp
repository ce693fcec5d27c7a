#pragma once

#include <coxswain/runtime/communication/collective_request.hpp>

#include <cstddef>
#include <span>

namespace cox {

/// What one rank brings to an operation: its memory in this process, contiguous unless rows are said.
struct RankBuffers {
  const std::byte* source = nullptr;  ///< nullptr where the rank has none to give.
  std::byte* destination = nullptr;   ///< nullptr where it gets nothing.
  /// Of Send and Receive only: the memory is rows of so many bytes, which may differ between the two sides; 0: dense.
  std::size_t row_bytes = 0;
  std::size_t pitch = 0;  ///< Bytes from row to row; 0: they follow each other.
};

/// Does share `share` of `shares` of one operation on the calling thread, which needs no more than the memory to be
/// there: it waits for nobody. All shares together, in any order and at the same time, do the operation; every element
/// is made by one share, and no share reads what another writes. Whoever has seen all shares return sees the results.
///
/// `ranks` are given in the order of ranks; those of a Send or Receive, which are the same here, are the sender and the
/// receiver. Pointers are aligned for their elements. Buffers overlap only in place, where NCCL allows it: source and
/// destination are the same for AllReduce, Reduce and Broadcast; the source of AllGather is the rank's own block of its
/// destination; the destination of ReduceScatter is the rank's own block of its source.
///
/// The bits of a reduction are those of detail::reduce: in the order of ranks, equal on every rank and for every number
/// of shares. The request must make sense: its elements can be reduced if they are to be, its root is a rank.
void run_share(const CollectiveRequest& request, std::span<const RankBuffers> ranks, std::size_t share,
               std::size_t shares) noexcept;

}  // namespace cox
