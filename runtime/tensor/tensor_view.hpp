#pragma once

#include <coxswain/runtime/base/shape.hpp>
#include <coxswain/runtime/handle/handle.hpp>
#include <coxswain/runtime/tensor/element_type.hpp>

#include <cstddef>
#include <optional>
#include <utility>

namespace cox {

/// A tensor in device memory, with the type of its elements.
struct TensorView {
  Handle memory;  ///< The window begins at the first element.
  Shape shape;
  Strides strides;  ///< elements
  ElementType type = ElementType::U8;

  /// A row-major tensor without padding. Does not check that the memory is large enough.
  [[nodiscard]] static TensorView contiguous(Handle memory, Shape shape, ElementType type) {
    Strides strides = contiguous_strides(shape);
    return {std::move(memory), std::move(shape), std::move(strides), type};
  }
  /// The descriptor for read_tensor and write_tensor, which accept row-major strides with padding of the last dimension
  /// only.
  [[nodiscard]] CopyDescriptor copy_descriptor() const {
    return memory.copy_descriptor(shape, strides, element_size(type));
  }
};

/// The number of elements of memory from the first to the last element of the tensor, both included; 0 if it is empty.
/// std::nullopt if that overflows, or unless, with the dimensions ordered by stride, each stride is at least the extent
/// in memory of all smaller ones together: then no two elements share memory. Strides of dimensions of extent 1 are
/// ignored. Shape and strides must have the same rank.
[[nodiscard]] std::optional<std::size_t> span_without_overlap(const Shape& shape, const Strides& strides);

/// The same strides, except that those of dimensions of extent 1, which no access uses, become values with which
/// plan_copy accepts the tensor if it can; an empty tensor gets contiguous_strides. Same precondition.
[[nodiscard]] Strides canonical_strides(const Shape& shape, Strides strides);

}  // namespace cox
