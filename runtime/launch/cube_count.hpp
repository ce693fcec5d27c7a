#pragma once

#include <coxswain/runtime/handle/binding.hpp>
#include <coxswain/runtime/handle/handle.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

namespace cox {

/// The number of cubes (thread blocks) of a launch along each axis. It is known at the call, or read from device memory
/// just before the kernel runs.
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
  CubeCount(std::uint32_t x, std::uint32_t y, std::uint32_t z) noexcept : count_{x, y, z} {}
  CubeCount(const CubeCount& other)
      : count_(other.count_),
        dynamic_(other.dynamic_ == nullptr ? nullptr : std::make_unique<const Binding>(*other.dynamic_)) {}
  CubeCount(CubeCount&&) noexcept = default;
  CubeCount& operator=(CubeCount other) noexcept {
    count_ = other.count_;
    dynamic_ = std::move(other.dynamic_);
    return *this;
  }
  ~CubeCount() = default;
  /// The count is stored as three u32 values, x, y and z, at the start of the binding. It is read on the stream just
  /// before the kernel runs. Throws std::bad_alloc; so does copying a dynamic count.
  [[nodiscard]] static CubeCount dynamic(Binding binding) { return CubeCount(std::move(binding)); }
  [[nodiscard]] static CubeCount dynamic(const Handle& handle) { return CubeCount(handle.binding()); }
  [[nodiscard]] static CubeCount single() noexcept { return {1, 1, 1}; }
  [[nodiscard]] static CubeCount of_1d(std::uint32_t x) noexcept { return {x, 1, 1}; }
  [[nodiscard]] static CubeCount of_2d(std::uint32_t x, std::uint32_t y) noexcept { return {x, y, 1}; }

  /// Whether the launch certainly runs no cube. Always false for a dynamic count.
  [[nodiscard]] bool is_empty() const noexcept {
    const Static* known = as_static();
    return known != nullptr && known->is_empty();
  }
  /// Null for a dynamic count.
  [[nodiscard]] const Static* as_static() const noexcept { return dynamic_ == nullptr ? &count_ : nullptr; }
  /// Null for a static count.
  [[nodiscard]] const Binding* as_dynamic() const noexcept { return dynamic_.get(); }

 private:
  explicit CubeCount(Binding binding) : dynamic_(std::make_unique<const Binding>(std::move(binding))) {}

  Static count_;
  std::unique_ptr<const Binding> dynamic_;
};

/// "(16, 1, 1)".
[[nodiscard]] inline std::string to_string(const CubeCount::Static& count) {
  return "(" + std::to_string(count.x) + ", " + std::to_string(count.y) + ", " + std::to_string(count.z) + ")";
}

}  // namespace cox
