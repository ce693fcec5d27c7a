#pragma once

#include <coxswain/collectives/reduction/instruction_set.hpp>
#include <coxswain/runtime/tensor/element_type.hpp>

#include <cstddef>

namespace cox::detail {

/// Makes floats of neighbouring elements of 8 or 16 bits, and elements of floats. As float_formats.hpp says, but of
/// NaNs encode() makes only the quiet, positive one without payload, and decode() any.
struct NarrowCodec {
  /// Floats are written in steps of so many: there must be room for the whole of the last one.
  static constexpr std::size_t step = 64;

  void (*decode)(const std::byte* from, std::size_t count, float* to) noexcept;
  void (*encode)(const float* from, std::size_t count, std::byte* to) noexcept;
};

/// nullptr for types that are not computed in float for want of bits.
[[nodiscard]] const NarrowCodec* narrow_codec(InstructionSet set, ElementType type) noexcept;

}  // namespace cox::detail
