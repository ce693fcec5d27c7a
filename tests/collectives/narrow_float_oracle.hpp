#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace cox::test {

/// A float of 8 or 16 bits worked out the slow way: its numbers are listed as doubles, and rounding looks for the
/// nearest of them.
class NarrowFloatOracle {
 public:
  struct Format {
    int width;
    int exponent_bits;
    bool has_infinity;
    bool saturates;
  };

  explicit NarrowFloatOracle(Format format) : format_(format), mantissa_bits_(format.width - 1 - format.exponent_bits) {
    for (std::uint32_t pattern = 0; std::isfinite(decode(pattern)); ++pattern) numbers_.push_back(decode(pattern));
  }

  /// All patterns from 0 to that of the largest finite number, in order.
  [[nodiscard]] const std::vector<double>& numbers() const noexcept { return numbers_; }
  [[nodiscard]] std::uint32_t sign_bit() const noexcept { return 1U << (format_.width - 1); }
  [[nodiscard]] std::uint32_t patterns() const noexcept { return 1U << format_.width; }
  [[nodiscard]] std::uint32_t infinity() const noexcept {
    return ((1U << format_.exponent_bits) - 1) << mantissa_bits_;
  }
  /// Quiet, positive, without payload.
  [[nodiscard]] std::uint32_t nan() const noexcept {
    return format_.has_infinity ? infinity() + (1U << (mantissa_bits_ - 1)) : sign_bit() - 1;
  }

  [[nodiscard]] double decode(std::uint32_t pattern) const {
    const std::uint32_t magnitude = pattern & (sign_bit() - 1);
    const double sign = (pattern & sign_bit()) != 0 ? -1 : 1;
    if (format_.has_infinity && magnitude >= infinity())
      return magnitude == infinity() ? sign * HUGE_VAL : std::numeric_limits<double>::quiet_NaN();
    if (!format_.has_infinity && magnitude == sign_bit() - 1) return std::numeric_limits<double>::quiet_NaN();
    const int exponent = static_cast<int>(magnitude >> mantissa_bits_);
    const int mantissa = static_cast<int>(magnitude) - (exponent << mantissa_bits_);
    const int bias = (1 << (format_.exponent_bits - 1)) - 1;
    if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits_);
    return sign * std::ldexp(mantissa + (1 << mantissa_bits_), exponent - bias - mantissa_bits_);
  }

  /// To the nearest, of two equally near ones to the even.
  [[nodiscard]] std::uint32_t encode(double value) const {
    if (std::isnan(value)) return nan();
    const std::uint32_t sign = std::signbit(value) ? sign_bit() : 0;
    const double magnitude = std::fabs(value);
    std::size_t low = 0;
    for (std::size_t length = numbers_.size(); length > 1;) {
      const std::size_t half = length / 2;
      if (numbers_[low + half] <= magnitude) low += half;
      length -= half;
    }
    if (low + 1 == numbers_.size()) return sign | beyond(magnitude);
    const double below = magnitude - numbers_[low];
    const double above = numbers_[low + 1] - magnitude;
    const bool up = above < below || (above == below && low % 2 != 0);
    return sign | static_cast<std::uint32_t>(low + (up ? 1 : 0));
  }

 private:
  // The first number that there is no room for would be as far above the largest as the one before is below.
  [[nodiscard]] std::uint32_t beyond(double magnitude) const {
    const auto largest = static_cast<std::uint32_t>(numbers_.size() - 1);
    if (format_.saturates) return largest;
    const double half_a_step = (numbers_[largest] - numbers_[largest - 1]) / 2;
    return magnitude - numbers_[largest] < half_a_step ? largest : infinity();
  }

  Format format_;
  int mantissa_bits_;
  std::vector<double> numbers_;
};

inline const NarrowFloatOracle& f16_oracle() {
  static const NarrowFloatOracle oracle({.width = 16, .exponent_bits = 5, .has_infinity = true, .saturates = false});
  return oracle;
}
inline const NarrowFloatOracle& bf16_oracle() {
  static const NarrowFloatOracle oracle({.width = 16, .exponent_bits = 8, .has_infinity = true, .saturates = false});
  return oracle;
}
inline const NarrowFloatOracle& f8e5m2_oracle() {
  static const NarrowFloatOracle oracle({.width = 8, .exponent_bits = 5, .has_infinity = true, .saturates = true});
  return oracle;
}
inline const NarrowFloatOracle& f8e4m3_oracle() {
  static const NarrowFloatOracle oracle({.width = 8, .exponent_bits = 4, .has_infinity = false, .saturates = true});
  return oracle;
}

}  // namespace cox::test
