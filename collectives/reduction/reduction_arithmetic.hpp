#pragma once

#include <coxswain/runtime/communication/reduce_operation.hpp>
#include <coxswain/runtime/tensor/element_type.hpp>

#include <cmath>
#include <concepts>
#include <cstdint>
#include <limits>
#include <type_traits>

// Computes one element from the elements of all ranks. All functions are always inlined, because the loops that call
// them are compiled for several instruction sets.
namespace cox::detail {

/// Elements that are computed in their own type. encode() replaces every NaN by one canonical NaN, because the NaN that
/// an addition returns depends on the processor and on the compiler's order of the operands.
template <ElementType element_type, typename T>
struct Plain {
  static constexpr ElementType type = element_type;
  using Stored = T;
  using Computed = T;
  [[gnu::always_inline]] static T decode(T value) noexcept { return value; }
  [[gnu::always_inline]] static T encode(T value) noexcept {
    if constexpr (std::floating_point<T>) return std::isnan(value) ? std::numeric_limits<T>::quiet_NaN() : value;
    return value;
  }
};

// The type in which a sum of integers is exact, for as many ranks as there can be devices. The quotient of the sum by
// the number of ranks, truncated, is exact too: the sum is below 2^53 in a double, so a quotient that is not an integer
// differs from the next integer by more than the rounding error.
__extension__ using Signed128 = __int128;
__extension__ using Unsigned128 = unsigned __int128;
template <typename T>
using Exact =
    std::conditional_t<sizeof(T) < 8, double, std::conditional_t<std::is_signed_v<T>, Signed128, Unsigned128>>;

template <typename Element, ReduceOperation operation>
struct AccumulatorOf {
  using type = typename Element::Computed;
};
template <typename Element>
  requires std::integral<typename Element::Computed>
struct AccumulatorOf<Element, ReduceOperation::Mean> {
  using type = Exact<typename Element::Computed>;
};
/// The type in which the elements of several ranks are accumulated.
template <typename Element, ReduceOperation operation>
using Accumulator = typename AccumulatorOf<Element, operation>::type;

// Integers wrap around: they are computed in unsigned types, and not in int, where the product of two 16-bit integers
// could overflow.
template <typename T>
using Wrapping = std::conditional_t<sizeof(T) < 8, std::uint32_t, std::uint64_t>;

template <typename T>
[[gnu::always_inline]] inline T sum_of(T a, T b) noexcept {
  if constexpr (std::integral<T>)
    return static_cast<T>(static_cast<Wrapping<T>>(a) + static_cast<Wrapping<T>>(b));
  else
    return a + b;
}

template <typename T>
[[gnu::always_inline]] inline T product_of(T a, T b) noexcept {
  if constexpr (std::integral<T>)
    return static_cast<T>(static_cast<Wrapping<T>>(a) * static_cast<Wrapping<T>>(b));
  else
    return a * b;
}

// Returns the first of equal values. If either value is a NaN, returns a NaN.
template <ReduceOperation operation, typename T>
[[gnu::always_inline]] inline T extreme_of(T a, T b) noexcept {
  bool take = operation == ReduceOperation::Min ? b < a : a < b;
  if constexpr (std::floating_point<T>) take = take | std::isnan(b);
  return take ? b : a;
}

template <ReduceOperation operation, typename T>
[[gnu::always_inline]] inline T combined(T a, T b) noexcept {
  if constexpr (operation == ReduceOperation::Sum)
    return sum_of(a, b);
  else if constexpr (operation == ReduceOperation::Mean)
    return a + b;  // integers have the type Exact here
  else if constexpr (operation == ReduceOperation::Product)
    return product_of(a, b);
  else
    return extreme_of<operation>(a, b);
}

template <typename Element, ReduceOperation operation>
[[gnu::always_inline]] inline typename Element::Stored finished(Accumulator<Element, operation> value,
                                                                Accumulator<Element, operation> ranks) noexcept {
  if constexpr (operation == ReduceOperation::Mean) value = value / ranks;
  return Element::encode(static_cast<typename Element::Computed>(value));
}

}  // namespace cox::detail
