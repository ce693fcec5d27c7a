#pragma once

#include <coxswain/runtime/base/shape.hpp>
#include <coxswain/runtime/handle/handle.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace cox {

enum class MemoryLayoutStrategy : std::uint8_t {
  Contiguous,  ///< No padding.
  Optimized,   ///< Laid out for fast access: rows are padded where the device benefits from it.
};

/// A tensor to be allocated.
struct MemoryLayoutDescriptor {
  MemoryLayoutStrategy strategy = MemoryLayoutStrategy::Contiguous;
  Shape shape;
  std::size_t elem_size = 1;  ///< bytes

  [[nodiscard]] static MemoryLayoutDescriptor optimized(Shape shape, std::size_t elem_size) {
    return {MemoryLayoutStrategy::Optimized, std::move(shape), elem_size};
  }
  [[nodiscard]] static MemoryLayoutDescriptor contiguous(Shape shape, std::size_t elem_size) {
    return {MemoryLayoutStrategy::Contiguous, std::move(shape), elem_size};
  }
};

/// An allocated tensor: its memory, and its strides there.
struct MemoryLayout {
  Handle memory;
  Strides strides;  ///< elements

  /// Returns the descriptor for reading or writing the tensor. Shape and element size must be those that the layout was
  /// made for.
  [[nodiscard]] CopyDescriptor copy_descriptor(Shape shape, std::size_t elem_size) const {
    return memory.copy_descriptor(std::move(shape), strides, elem_size);
  }
};

}  // namespace cox
