#pragma once

#include <cstddef>

namespace cox::detail {

/// Capacity of the memory that the kernels use: what limits cannot exceed.
inline constexpr std::size_t most_by_lines = std::size_t{256} << 10U;    ///< of one rank, for another one
inline constexpr std::size_t most_before_flags = std::size_t{8} << 20U;  ///< of all other ranks together

/// Up to which size our own kernels do the collectives of GPUs, and how, for a number of ranks. Sizes in bytes. The
/// algorithms are described in peer_kernels_source.cpp.
struct PeerKernelLimits {
  /// all_reduce: by lines, in one shot with flags, in two shots; larger ones are NCCL's. A group counts as one
  /// operation of its total size, without lines. A reduce likewise, but not in two shots.
  std::size_t lines = 0;
  std::size_t one_shot = 0;
  std::size_t all_reduce = 0;
  /// A block of all_gather or reduce_scatter, and a broadcast, by lines.
  std::size_t block_lines = 0;
  std::size_t broadcast_lines = 0;
  /// The blocks of all ranks together, for all_gather and reduce_scatter, and a broadcast.
  std::size_t blocks = 0;
  std::size_t broadcast = 0;
  unsigned thread_blocks = 1;  ///< at most

  /// Whether the memory of the kernels is large enough for operations of these sizes.
  [[nodiscard]] bool fit(std::size_t ranks) const noexcept;
  friend bool operator==(const PeerKernelLimits&, const PeerKernelLimits&) = default;
};

/// The limits for so many ranks. The only place with them: the tables of `perf_peer` on H200s.
[[nodiscard]] const PeerKernelLimits& peer_kernel_limits(std::size_t ranks) noexcept;

}  // namespace cox::detail
