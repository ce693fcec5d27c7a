#include <coxswain/runtime/tensor/memory_layout_policy.hpp>

#include <coxswain/runtime/error/io_error.hpp>

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>
#include <optional>
#include <string>

namespace cox {
namespace {

constexpr std::size_t smallest_row_alignment = 16;

/// Bytes from one row to the next, or nullopt if that overflows.
std::optional<std::size_t> row_pitch(std::size_t row_elements, std::size_t elem_size, std::size_t alignment) {
  const auto width = checked_product(row_elements, elem_size);
  if (!width) return std::nullopt;
  if (row_elements == 1) return width;
  // bit_ceil is undefined where the result overflows; a row of `alignment` bytes or more is aligned to `alignment`
  // anyway.
  const std::size_t wanted = *width >= alignment ? alignment : std::bit_ceil(std::max<std::size_t>(*width, 1));
  const std::size_t row_alignment = std::clamp(wanted, smallest_row_alignment, alignment);
  const auto step = checked_product(row_alignment / std::gcd(row_alignment, elem_size), elem_size);
  return step ? checked_round_up(*width, *step) : std::nullopt;
}

}  // namespace

TensorExtent ContiguousLayoutPolicy::extent(const MemoryLayoutDescriptor& tensor) const {
  if (tensor.elem_size == 0)
    throw IoError(IoError::Kind::ElementSize, "a tensor of shape " + to_string(tensor.shape) + " has elements of 0 B");
  const auto count = element_count(tensor.shape);
  const auto size = count ? checked_product(*count, tensor.elem_size) : count;
  if (!size)
    throw IoError(IoError::Kind::BufferTooBig, "a tensor of shape " + to_string(tensor.shape) + " with elements of " +
                                                   std::to_string(tensor.elem_size) + " B exceeds the address space");
  return {*size, contiguous_strides(tensor.shape)};
}

TensorExtent PitchedLayoutPolicy::extent(const MemoryLayoutDescriptor& tensor) const {
  TensorExtent result = ContiguousLayoutPolicy(alignment_).extent(tensor);
  const std::size_t rank = tensor.shape.size();
  if (tensor.strategy == MemoryLayoutStrategy::Contiguous || rank == 0) return result;

  const auto pitch = row_pitch(tensor.shape.back(), tensor.elem_size, alignment_);
  const auto rows = element_count(Shape(tensor.shape.begin(), tensor.shape.end() - 1));
  const auto size = pitch && rows ? checked_product(std::max<std::size_t>(*rows, 1), *pitch) : std::nullopt;
  if (!size)
    throw IoError(IoError::Kind::BufferTooBig, "a padded tensor of shape " + to_string(tensor.shape) +
                                                   " with elements of " + std::to_string(tensor.elem_size) +
                                                   " B exceeds the address space");
  result.size = *size;
  if (rank == 1) return result;
  result.strides[rank - 2] = std::max<std::size_t>(*pitch / tensor.elem_size, 1);
  for (std::size_t i = rank - 2; i-- > 0;)
    result.strides[i] = checked_product(result.strides[i + 1], std::max<std::size_t>(tensor.shape[i + 1], 1))
                            .value_or(std::numeric_limits<std::size_t>::max());
  return result;
}

AllocationLayout detail::place_extents(const MemoryOwner& owner, StreamId stream, std::size_t alignment,
                                       std::span<TensorExtent> extents) {
  // A single tensor gets an allocation of exactly its size; several tensors are padded so that each starts aligned.
  std::size_t total = extents.size() == 1 ? extents[0].size : 0;
  if (extents.size() != 1) {
    for (const TensorExtent& extent : extents) {
      const auto padded = checked_round_up(extent.size, alignment);
      const auto sum = padded ? checked_sum(total, *padded) : padded;
      if (!sum) throw IoError(IoError::Kind::BufferTooBig, "the tensors together exceed the address space");
      total = *sum;
    }
  }

  const ManagedMemoryHandle memory(ManagedMemory::create(owner, total));
  AllocationLayout result{Handle(memory, stream), {}};
  result.parts.reserve(extents.size());
  std::size_t start = 0;
  for (TensorExtent& extent : extents) {
    const std::size_t end = start + extent.size;
    result.parts.push_back(
        {Handle(memory, stream).offset_start(start).offset_end(total - end), std::move(extent.strides)});
    start = checked_round_up(end, alignment).value_or(end);
  }
  return result;
}

}  // namespace cox
