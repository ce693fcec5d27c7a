#include <coxswain/runtime/tensor/memory_layout_policy.hpp>

#include <coxswain/runtime/error/io_error.hpp>

namespace cox::detail {

AllocationLayout place_extents(const MemoryOwner& owner, StreamId stream, std::size_t alignment,
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

}  // namespace cox::detail
