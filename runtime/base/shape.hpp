#pragma once

#include <coxswain/runtime/base/small_vector.hpp>

#include <cstddef>
#include <optional>
#include <string>

namespace cox {

/// Extent of each dimension in elements, outermost first. Rank 0 is one element; any zero is an empty tensor.
using Shape = SmallVector<std::size_t, 6>;
/// Step of each dimension in elements, outermost first.
using Strides = SmallVector<std::size_t, 6>;

/// `a * b`, or nullopt if that overflows.
[[nodiscard]] constexpr std::optional<std::size_t> checked_product(std::size_t a, std::size_t b) noexcept {
  std::size_t result = 0;
  if (__builtin_mul_overflow(a, b, &result)) return std::nullopt;
  return result;
}
/// `a + b`, or nullopt if that overflows.
[[nodiscard]] constexpr std::optional<std::size_t> checked_sum(std::size_t a, std::size_t b) noexcept {
  std::size_t result = 0;
  if (__builtin_add_overflow(a, b, &result)) return std::nullopt;
  return result;
}
/// The smallest multiple of `step` (at least 1) that is not below `value`, or nullopt if that overflows.
[[nodiscard]] constexpr std::optional<std::size_t> checked_round_up(std::size_t value, std::size_t step) noexcept {
  const std::size_t over = value % step;
  return over == 0 ? value : checked_sum(value, step - over);
}

/// The number of elements of a tensor of this shape (1 for rank 0), or nullopt if that overflows.
/// An extent of zero makes it 0, whatever the other extents are.
[[nodiscard]] std::optional<std::size_t> element_count(const Shape& shape) noexcept;
/// Row-major strides without padding. Zero extents count as one, so that no stride is zero. A stride that overflows is
/// the maximum of std::size_t.
[[nodiscard]] Strides contiguous_strides(const Shape& shape);
/// "[2, 3, 5]".
[[nodiscard]] std::string to_string(const Shape& shape);

}  // namespace cox
