#pragma once

#include <coxswain/runtime/base/device_properties.hpp>
#include <coxswain/runtime/launch/cube_count.hpp>

#include <cstdint>

namespace cox {

/// A cube count for at least a requested number of cubes, with x and y within the limits of the device. Rounding can
/// add cubes, so the kernel must check its bounds.
class CubeCountSelection {
 public:
  CubeCountSelection(const HardwareProperties& hardware, std::uint32_t cubes) noexcept;

  /// Whether more cubes run than were requested; the additional cubes have no work.
  [[nodiscard]] bool has_idle() const noexcept { return actual_ != wanted_; }
  [[nodiscard]] const CubeCount::Static& cube_count() const noexcept { return count_; }
  /// Number of cubes that will run.
  [[nodiscard]] std::uint64_t actual() const noexcept { return actual_; }

 private:
  CubeCount::Static count_;
  std::uint64_t wanted_;
  std::uint64_t actual_;
};

/// Halves x (rounding up) and doubles y until x is within its maximum. Then does the same with y and z if x had to be
/// halved. z is not limited.
[[nodiscard]] CubeCount::Static spread_cube_count(const CubeCount::Static& maximum, std::uint32_t cubes) noexcept;

}  // namespace cox
