#pragma once

#include <bit>
#include <cstdint>

namespace cox::detail {

/// How a format encodes infinity, and numbers beyond its largest finite number.
enum class Overflow : std::uint8_t {
  ToInfinity,
  Saturates,  ///< To the largest finite number of the same sign.
};

/// All bits set if a < b, else none. Both must be below 2^31. Conditions are masks here: a branch around floating-point
/// arithmetic would prevent vectorisation of the loops, and a bool would add conversions to them.
[[nodiscard, gnu::always_inline]] constexpr std::uint32_t less(std::uint32_t a, std::uint32_t b) noexcept {
  return static_cast<std::uint32_t>(static_cast<std::int32_t>(a - b) >> 31);
}
[[nodiscard, gnu::always_inline]] constexpr std::uint32_t choose(std::uint32_t mask, std::uint32_t a,
                                                                 std::uint32_t b) noexcept {
  return b ^ ((a ^ b) & mask);
}

/// A float of 8 or 16 bits: one sign bit, `exponent_bits`, the rest mantissa. decode() is exact; encode() rounds to
/// nearest, ties to even, subnormal numbers included. A NaN becomes a quiet NaN with the same sign and the upper bits
/// of its payload.
template <typename BitsType, unsigned exponent_bits, bool has_infinity, Overflow overflow>
struct NarrowFloat {
  using Bits = BitsType;

  static constexpr unsigned width = 8 * sizeof(Bits);
  static constexpr unsigned mantissa_bits = width - 1 - exponent_bits;
  static constexpr std::uint32_t magnitude_mask = (1U << (width - 1)) - 1;
  static constexpr std::uint32_t mantissa_mask = (1U << mantissa_bits) - 1;
  /// All bits of the exponent set: infinity if the format has one, else the smallest number with the largest exponent.
  static constexpr std::uint32_t top_exponent = magnitude_mask & ~mantissa_mask;
  static constexpr std::uint32_t quiet_nan = has_infinity ? top_exponent | 1U << (mantissa_bits - 1) : magnitude_mask;
  static constexpr std::uint32_t largest = has_infinity ? top_exponent - 1 : magnitude_mask - 1;
  /// The encoding of a number that is too large.
  static constexpr std::uint32_t limit = overflow == Overflow::Saturates ? largest : top_exponent;

  // Compared with a 32-bit float: the difference in mantissa bits, the difference of the exponent biases, and the
  // smallest float that is a normal number in this format.
  static constexpr unsigned shift = 23 - mantissa_bits;
  static constexpr std::uint32_t rebias = 127 - ((1U << (exponent_bits - 1)) - 1);
  static constexpr std::uint32_t smallest_normal = (rebias + 1) << 23;
  static constexpr std::uint32_t float_infinity = 0x7f800000U;
  /// Adding this float rounds a subnormal number: its last mantissa bit has the value of the smallest subnormal number.
  static constexpr std::uint32_t ruler = smallest_normal + (shift << 23);

  [[nodiscard, gnu::always_inline]] static constexpr float decode(Bits bits) noexcept {
    const std::uint32_t magnitude = (bits & magnitude_mask) << shift;
    const std::uint32_t sign = static_cast<std::uint32_t>(bits) >> (width - 1) << 31;
    if constexpr (rebias == 0) return std::bit_cast<float>(sign | magnitude);
    // A subnormal number has no implicit leading one: decode its mantissa as a fraction added to the smallest normal
    // number, then subtract that number again.
    const float fraction = std::bit_cast<float>(magnitude + smallest_normal) - std::bit_cast<float>(smallest_normal);
    const std::uint32_t normal = magnitude + (rebias << 23);
    const std::uint32_t number = choose(less(magnitude, 1U << 23), std::bit_cast<std::uint32_t>(fraction), normal);
    constexpr std::uint32_t last_number = ((has_infinity ? top_exponent : magnitude_mask) << shift) - 1;
    return std::bit_cast<float>(sign | number | (less(last_number, magnitude) & float_infinity));
  }

  [[nodiscard, gnu::always_inline]] static constexpr Bits encode(float value) noexcept {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t magnitude = bits & 0x7fffffffU;
    const std::uint32_t to_even = (1U << (shift - 1)) - 1 + (magnitude >> shift & 1U);
    std::uint32_t rounded = (magnitude - (rebias << 23) + to_even) >> shift;
    rounded = choose(less(limit, rounded), limit, rounded);
    if constexpr (rebias != 0) {
      const float ruled = std::bit_cast<float>(magnitude) + std::bit_cast<float>(ruler);
      rounded = choose(less(magnitude, smallest_normal), std::bit_cast<std::uint32_t>(ruled) - ruler, rounded);
    }
    const std::uint32_t nan = quiet_nan | (magnitude >> shift & mantissa_mask);
    return static_cast<Bits>((bits >> 31 << (width - 1)) | choose(less(float_infinity, magnitude), nan, rounded));
  }
};

using F16 = NarrowFloat<std::uint16_t, 5, true, Overflow::ToInfinity>;
using BF16 = NarrowFloat<std::uint16_t, 8, true, Overflow::ToInfinity>;
/// Both 8-bit formats saturate, infinity included, as NCCL's reductions do: NCCL converts with the constructors of
/// __nv_fp8_e4m3 and __nv_fp8_e5m2, which use __NV_SATFINITE (NCCL, src/device/reduce_kernel.h; CUDA, cuda_fp8.hpp).
using F8E5M2 = NarrowFloat<std::uint8_t, 5, true, Overflow::Saturates>;
/// OCP's FN variant: it has no infinity, and 0x7f and 0xff are its only NaNs.
using F8E4M3 = NarrowFloat<std::uint8_t, 4, false, Overflow::Saturates>;

}  // namespace cox::detail
