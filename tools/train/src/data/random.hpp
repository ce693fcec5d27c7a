#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace train {

/// 64 bits that depend on all bits of `x` (the finaliser of SplitMix64; Steele, Lea and Flood, 2014).
[[nodiscard]] constexpr std::uint64_t mixed(std::uint64_t x) {
  x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31U);
}

/// A sequence of random numbers that is the same for the same seed and name, on every rank.
class Random {
 public:
  Random(std::uint64_t seed, std::string_view name) : state_(mixed(seed + 0x9e3779b97f4a7c15U)) {
    for (const char c : name) state_ = mixed(state_ ^ static_cast<unsigned char>(c));
  }

  [[nodiscard]] std::uint64_t next() { return mixed(state_ += 0x9e3779b97f4a7c15U); }
  /// In (0, 1].
  [[nodiscard]] double uniform() { return (static_cast<double>(next() >> 11U) + 1.0) * 0x1p-53; }
  /// Standard normal distribution (Box and Muller, 1958).
  [[nodiscard]] float normal() {
    const double radius = std::sqrt(-2.0 * std::log(uniform()));
    return static_cast<float>(radius * std::cos(6.283185307179586 * uniform()));
  }

 private:
  std::uint64_t state_;
};

}  // namespace train
