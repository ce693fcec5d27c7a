#pragma once

#include <coxswain/runtime/binding.hpp>
#include <coxswain/runtime/handle.hpp>
#include <coxswain/runtime/kernel_buffer.hpp>

#include <cstdint>
#include <string>
#include <utility>
#include <variant>

namespace cox {

/// How many cubes (blocks) a kernel runs, along each axis: known now, or read from device memory when it is its turn.
class CubeCount {
 public:
  struct Static {
    std::uint32_t x = 1;
    std::uint32_t y = 1;
    std::uint32_t z = 1;
    friend constexpr bool operator==(const Static&, const Static&) = default;
    [[nodiscard]] constexpr bool is_empty() const noexcept { return x == 0 || y == 0 || z == 0; }
  };

  CubeCount(Static count) noexcept : count_(count) {}  // NOLINT(google-explicit-constructor)
  CubeCount(std::uint32_t x, std::uint32_t y, std::uint32_t z) noexcept : count_(Static{x, y, z}) {}
  /// x, y and z as three u32 at the start of the binding, read on the stream just before the kernel runs.
  [[nodiscard]] static CubeCount dynamic(Binding binding) noexcept { return CubeCount(std::move(binding)); }
  [[nodiscard]] static CubeCount dynamic(const Handle& handle) noexcept { return CubeCount(handle.binding()); }
  [[nodiscard]] static CubeCount single() noexcept { return {1, 1, 1}; }
  [[nodiscard]] static CubeCount of_1d(std::uint32_t x) noexcept { return {x, 1, 1}; }
  [[nodiscard]] static CubeCount of_2d(std::uint32_t x, std::uint32_t y) noexcept { return {x, y, 1}; }

  /// Certainly runs nothing. A dynamic count is never known to be empty.
  [[nodiscard]] bool is_empty() const noexcept {
    const Static* known = as_static();
    return known != nullptr && known->is_empty();
  }
  /// null for a dynamic count.
  [[nodiscard]] const Static* as_static() const noexcept { return std::get_if<Static>(&count_); }
  /// null for a static count.
  [[nodiscard]] const KernelBuffer* as_dynamic() const noexcept { return std::get_if<KernelBuffer>(&count_); }

 private:
  explicit CubeCount(Binding binding) noexcept : count_(KernelBuffer(std::move(binding), Access::Read)) {}

  std::variant<Static, KernelBuffer> count_;
};

/// "(16, 1, 1)".
[[nodiscard]] inline std::string to_string(const CubeCount::Static& count) {
  return "(" + std::to_string(count.x) + ", " + std::to_string(count.y) + ", " + std::to_string(count.z) + ")";
}

}  // namespace cox
