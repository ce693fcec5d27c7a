#pragma once

#include <coxswain/runtime/communication/reduce_operation.hpp>
#include <coxswain/runtime/tensor/element_type.hpp>

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace cox::detail {

/// Bytes of a rank's data in a line, and bytes of the whole line: four bytes of data and the epoch, twice.
inline constexpr std::size_t line_unit = 8;
inline constexpr std::size_t line_size = 16;
/// Bytes that a thread moves at a time where data is followed by flags.
inline constexpr std::size_t flags_unit = 16;
/// Threads of a block, and maximum number of blocks, for all kernels.
inline constexpr unsigned peer_kernel_threads = 512;
inline constexpr unsigned peer_kernel_blocks = 128;

/// Maximum number of tensors in a group for one kernel: the arguments of a kernel are limited to 4 KiB.
inline constexpr unsigned peer_kernel_pieces = 128;

/// The kernels, in the order of `peer_kernel_names`.
enum class PeerKernel : std::uint8_t {
  OneShotLines,
  ReduceScatterLines,
  OneShot,
  OneShotGroup,
  ReduceScatter,
  TwoShot,
  TwoShotGroup,
  AllGatherLines,
  BroadcastLines,
  AllGather,
  Broadcast
};
inline constexpr std::array<std::string_view, 11> peer_kernel_names{"cox_one_shot_lines",  "cox_reduce_scatter_lines",
                                                                    "cox_one_shot",        "cox_one_shot_group",
                                                                    "cox_reduce_scatter",  "cox_two_shot",
                                                                    "cox_two_shot_group",  "cox_all_gather_lines",
                                                                    "cox_broadcast_lines", "cox_all_gather",
                                                                    "cox_broadcast"};

/// Whether there are kernels for elements of this type.
[[nodiscard]] bool has_peer_kernels(ElementType type) noexcept;
/// The operations that the kernels of one source do: the reductions of a type by an operation, or all operations that
/// do not reduce (all_gather, broadcast), which have the same code for every type.
struct PeerKernelCode {
  bool reduces = false;
  ElementType type = ElementType::U8;  ///< as the next: only if it reduces
  ReduceOperation operation = ReduceOperation::Sum;

  /// Some total order, for maps.
  friend constexpr auto operator<=>(const PeerKernelCode&, const PeerKernelCode&) = default;
};
/// The kernels of one source. Two shots: for more than two ranks.
[[nodiscard]] std::span<const PeerKernel> peer_kernels_of(const PeerKernelCode& code, std::size_t ranks) noexcept;
/// The name of a kernel, as profilers show it; for one that reduces: cox_one_shot_f32_sum.
[[nodiscard]] std::string peer_kernel_name(PeerKernel kernel, const PeerKernelCode& code);
/// CUDA C++ source of these kernels for `ranks` GPUs. It includes no headers. Empty if has_peer_kernels() is false for
/// the type.
[[nodiscard]] std::string peer_kernels_source(const PeerKernelCode& code, std::size_t ranks);

}  // namespace cox::detail
