#pragma once

#include <coxswain/collectives/reduction/instruction_set.hpp>
#include <coxswain/runtime/tensor/element_type.hpp>

#include <cstddef>

namespace cox::detail {

/// Converts contiguous elements of 8 or 16 bits to floats, and floats to such elements, as float_formats.hpp does. NaNs
/// are an exception: encode() encodes each as the quiet, positive NaN without payload, and decode() may return any NaN.
struct NarrowCodec {
  /// Floats are written in steps of this many, so the destination needs room for a full last step.
  static constexpr std::size_t step = 64;

  void (*decode)(const std::byte* from, std::size_t count, float* to) noexcept;
  void (*encode)(const float* from, std::size_t count, std::byte* to) noexcept;
};

/// nullptr for types that are not widened to float for computations.
[[nodiscard]] const NarrowCodec* narrow_codec(InstructionSet set, ElementType type) noexcept;

}  // namespace cox::detail
