#pragma once

#include <coxswain/runtime/communication/reduce_operation.hpp>
#include <coxswain/runtime/tensor/element_type.hpp>

#include <compare>
#include <cstddef>
#include <string>
#include <string_view>

namespace cox::detail {

/// Bytes of a rank's data in a line of the one-shot kernel, and bytes of the whole line: four bytes of data and the
/// epoch, twice.
inline constexpr std::size_t one_shot_unit = 8;
inline constexpr std::size_t one_shot_line = 16;
/// Bytes that a thread of the two-shot kernel moves at a time.
inline constexpr std::size_t two_shot_unit = 16;
/// Threads of a block, and maximum number of blocks, for all kernels.
inline constexpr unsigned peer_kernel_threads = 512;
inline constexpr unsigned peer_kernel_blocks = 64;

/// Maximum number of tensors in a group for the two-shot kernel: the arguments of a kernel are limited to 4 KiB.
inline constexpr unsigned peer_kernel_pieces = 128;

/// Whether there are kernels for elements of this type.
[[nodiscard]] bool has_peer_kernels(ElementType type) noexcept;
/// The name of a kernel that reduces, as profilers show it: cox_one_shot_f32_sum.
[[nodiscard]] std::string peer_kernel_name(std::string_view kernel, ElementType type, ReduceOperation operation);
/// The operations that the kernels of one source do: the reductions of a type by an operation, or all operations that
/// do not reduce (all_gather, broadcast), which have the same code for every type.
struct PeerKernelCode {
  bool reduces = false;
  ElementType type = ElementType::U8;  ///< as the next: only if it reduces
  ReduceOperation operation = ReduceOperation::Sum;

  /// Some total order, for maps.
  friend constexpr auto operator<=>(const PeerKernelCode&, const PeerKernelCode&) = default;
};
/// CUDA C++ source of the kernels for `ranks` GPUs: cox_one_shot, cox_two_shot, cox_two_shot_group and
/// cox_reduce_scatter, whose full names are those of peer_kernel_name(), if the code reduces; else cox_all_gather and
/// cox_broadcast. The source includes no headers. Empty if has_peer_kernels() is false for the type.
[[nodiscard]] std::string peer_kernels_source(const PeerKernelCode& code, std::size_t ranks);

}  // namespace cox::detail
