#pragma once

#include <coxswain/runtime/base/device_properties.hpp>

#include <cstddef>
#include <cstdint>
#include <string>

namespace cox {

/// The number of units (threads) of one cube (thread block) along each axis.
struct CubeDim {
  std::uint32_t x = 1;
  std::uint32_t y = 1;
  std::uint32_t z = 1;

  friend constexpr bool operator==(const CubeDim&, const CubeDim&) = default;

  [[nodiscard]] static constexpr CubeDim single() noexcept { return {1, 1, 1}; }
  [[nodiscard]] static constexpr CubeDim of_1d(std::uint32_t x) noexcept { return {x, 1, 1}; }
  [[nodiscard]] static constexpr CubeDim of_2d(std::uint32_t x, std::uint32_t y) noexcept { return {x, y, 1}; }
  /// A default for element-wise work on `working_units` units. x is one plane (warp). On a GPU, y is the largest power
  /// of two of planes that the work fills, at least 1 and at most 8. On a CPU, y is the number of CPU threads, or
  /// `working_units` if that is less. On both, the cube has at most the number of units that the device allows, and y
  /// is at least 1.
  [[nodiscard]] static CubeDim for_units(const HardwareProperties& hardware, std::size_t working_units) noexcept;

  /// Number of units of the cube.
  [[nodiscard]] constexpr std::uint64_t unit_count() const noexcept {
    // The product of three 32-bit extents may overflow 64 bits. It then saturates at a value above every device limit.
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
