#pragma once

#include <coxswain/runtime/error/io_error.hpp>
#include <coxswain/runtime/handle/managed_memory.hpp>
#include <coxswain/runtime/tensor/memory_layout.hpp>

#include <concepts>
#include <cstddef>
#include <source_location>
#include <span>

namespace cox {

/// The size and strides of one tensor, before it is allocated.
struct TensorExtent {
  std::size_t size = 0;  ///< bytes, padding included
  Strides strides;       ///< elements
};

/// How a device lays out tensors in its memory. Pure arithmetic, called on client threads, so that an allocation need
/// not wait for the device. `extent` throws IoError BufferTooBig and ElementSize; `alignment` is in bytes, a power of
/// two, and holds for each tensor of an allocation.
template <class P>
concept MemoryLayoutPolicy = std::copyable<P> && requires(const P& policy, const MemoryLayoutDescriptor& tensor) {
  { policy.extent(tensor) } -> std::same_as<TensorExtent>;
  { policy.alignment() } noexcept -> std::same_as<std::size_t>;
};

/// Lays out every tensor row-major without padding, whatever strategy is requested.
class ContiguousLayoutPolicy {
 public:
  explicit ContiguousLayoutPolicy(std::size_t alignment) noexcept : alignment_(alignment) {}

  [[nodiscard]] TensorExtent extent(const MemoryLayoutDescriptor& tensor) const;
  [[nodiscard]] std::size_t alignment() const noexcept { return alignment_; }

 private:
  std::size_t alignment_;
};

static_assert(MemoryLayoutPolicy<ContiguousLayoutPolicy>);

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

/// Tensors that share one allocation.
struct AllocationLayout {
  Handle base;                         ///< the whole allocation
  SmallVector<MemoryLayout, 1> parts;  ///< one for each tensor, in order, at aligned offsets of `base`
};

/// Lays `tensors` out in one allocation on `stream` and creates its handles. Throws what `policy.extent` throws, and
/// IoError BufferTooBig if the sum of the sizes overflows.
template <MemoryLayoutPolicy P>
[[nodiscard]] AllocationLayout lay_out(const P& policy, const MemoryOwner& owner, StreamId stream,
                                       std::span<const MemoryLayoutDescriptor> tensors,
                                       std::source_location site = std::source_location::current());

namespace detail {
/// Creates the handles of one allocation. `extents[i]` starts at the sum of the sizes before it, each rounded up to
/// `alignment`.
[[nodiscard]] AllocationLayout place_extents(const MemoryOwner& owner, StreamId stream, std::size_t alignment,
                                             std::span<TensorExtent> extents);
}  // namespace detail

template <MemoryLayoutPolicy P>
AllocationLayout lay_out(const P& policy, const MemoryOwner& owner, StreamId stream,
                         std::span<const MemoryLayoutDescriptor> tensors, std::source_location site) {
  try {
    SmallVector<TensorExtent, 1> extents;
    extents.reserve(tensors.size());
    for (const MemoryLayoutDescriptor& tensor : tensors) extents.push_back(policy.extent(tensor));
    return detail::place_extents(owner, stream, policy.alignment(), {extents.data(), extents.size()});
  } catch (const IoError& error) {
    throw IoError(error.kind(), error.what(), site, error.cause(), error.sizes());
  }
}

}  // namespace cox
