#pragma once

#include <cstdint>

namespace cox::stress {

/// A small, fast, seeded generator (SplitMix64). Equal seeds give equal sequences on every machine. Not thread-safe.
class Random {
 public:
  explicit constexpr Random(std::uint64_t seed) noexcept : state_(seed) {}

  constexpr std::uint64_t next() noexcept {
    state_ += 0x9E3779B97F4A7C15U;
    return mixed(state_);
  }
  /// 0 to bound - 1; `bound` is 1 to 2^32.
  constexpr std::uint64_t below(std::uint64_t bound) noexcept { return ((next() >> 32U) * bound) >> 32U; }
  /// 0 to 1, excluding 1.
  constexpr double unit() noexcept { return static_cast<double>(next() >> 11U) * 0x1p-53; }

  /// A separate seed for each of several generators.
  [[nodiscard]] static constexpr std::uint64_t derived(std::uint64_t seed, std::uint64_t part) noexcept {
    return mixed(seed ^ mixed(part + 0x9E3779B97F4A7C15U));
  }

 private:
  static constexpr std::uint64_t mixed(std::uint64_t z) noexcept {
    z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27U)) * 0x94D049BB133111EBU;
    return z ^ (z >> 31U);
  }

  std::uint64_t state_;
};

}  // namespace cox::stress
