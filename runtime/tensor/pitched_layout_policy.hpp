#pragma once

#include <coxswain/runtime/tensor/memory_layout_policy.hpp>

#include <cstddef>

namespace cox {

/// Pads rows (the last dimension) so that each starts aligned, if strategy Optimized is requested; else contiguous.
/// A row is aligned to the next power of two of its width, at least 16 B and at most `alignment`; rows of one element
/// are not padded. A row is always a whole number of elements, even if the element size is not a power of two. An empty
/// tensor keeps strides that a non-empty one could have; only its size may be zero.
class PitchedLayoutPolicy {
 public:
  /// `alignment`: bytes, a power of two of at least 16.
  explicit PitchedLayoutPolicy(std::size_t alignment) noexcept : alignment_(alignment) {}

  [[nodiscard]] TensorExtent extent(const MemoryLayoutDescriptor& tensor) const;
  [[nodiscard]] std::size_t alignment() const noexcept { return alignment_; }

 private:
  std::size_t alignment_;
};

static_assert(MemoryLayoutPolicy<PitchedLayoutPolicy>);

}  // namespace cox
