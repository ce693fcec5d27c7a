#pragma once

#include <coxswain/runtime/base/device_properties.hpp>
#include <coxswain/runtime/launch/cube_count.hpp>

#include <cstdint>

namespace cox {

/// A cube count that respects the device's limits for a wanted number of cubes. When the number does not divide, there
/// are more cubes than wanted, and the kernel must check its bounds.
class CubeCountSelection {
 public:
  CubeCountSelection(const HardwareProperties& hardware, std::uint32_t cubes) noexcept;

  /// Some cubes have nothing to do.
  [[nodiscard]] bool has_idle() const noexcept { return actual_ != wanted_; }
  [[nodiscard]] const CubeCount::Static& cube_count() const noexcept { return count_; }
  /// Cubes that will run.
  [[nodiscard]] std::uint64_t actual() const noexcept { return actual_; }

 private:
  CubeCount::Static count_;
  std::uint64_t wanted_;
  std::uint64_t actual_;
};

/// Halves x (rounding up) and doubles y until x is within its maximum, then the same with y and z.
[[nodiscard]] CubeCount::Static spread_cube_count(const CubeCount::Static& maximum, std::uint32_t cubes) noexcept;

}  // namespace cox
