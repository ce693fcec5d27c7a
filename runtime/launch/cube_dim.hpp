#pragma once

#include <coxswain/runtime/base/device_properties.hpp>

#include <cstddef>
#include <cstdint>
#include <string>

namespace cox {

/// How many units (threads) one cube (block) has along each axis.
struct CubeDim {
  std::uint32_t x = 1;
  std::uint32_t y = 1;
  std::uint32_t z = 1;

  friend constexpr bool operator==(const CubeDim&, const CubeDim&) = default;

  [[nodiscard]] static constexpr CubeDim single() noexcept { return {1, 1, 1}; }
  [[nodiscard]] static constexpr CubeDim of_1d(std::uint32_t x) noexcept { return {x, 1, 1}; }
  [[nodiscard]] static constexpr CubeDim of_2d(std::uint32_t x, std::uint32_t y) noexcept { return {x, y, 1}; }
  /// A good default for element-wise work with so many units: one plane wide, a power of two of planes high, at most 8
  /// and at most what the device allows, at least one. On a CPU as many planes as it has threads, or units, if that is
  /// less.
  [[nodiscard]] static CubeDim for_units(const HardwareProperties& hardware, std::size_t working_units) noexcept;

  /// Units of the whole cube.
  [[nodiscard]] constexpr std::uint64_t unit_count() const noexcept {
    // Two 32-bit extents fit 64 bits; a third may not: saturate, which no device limit allows.
    const std::uint64_t plane = std::uint64_t{x} * y;
    std::uint64_t units = 0;
    return __builtin_mul_overflow(plane, std::uint64_t{z}, &units) ? UINT64_MAX : units;
  }
  /// Whether a cube of `other` fits inside this one.
  [[nodiscard]] constexpr bool can_contain(const CubeDim& other) const noexcept {
    return x >= other.x && y >= other.y && z >= other.z;
  }
};

/// "(256, 1, 1)".
[[nodiscard]] inline std::string to_string(const CubeDim& dim) {
  return "(" + std::to_string(dim.x) + ", " + std::to_string(dim.y) + ", " + std::to_string(dim.z) + ")";
}

}  // namespace cox
