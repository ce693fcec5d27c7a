#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace cox {

/// How a host kernel accesses its buffers. The mode does not change a CUDA kernel, which runs as it was compiled: its
/// access beyond a buffer is undefined behaviour, and may be a GPU fault.
enum class ExecutionMode : std::uint8_t {
  Checked,    ///< Access beyond a buffer is caught and fails the launch.
  Validate,   ///< The same checks as Checked, for kernels that are meant to run unchecked.
  Unchecked,  ///< Access beyond a buffer is undefined behaviour.
};

/// How kernels run that are launched unchecked.
enum class CheckMode : std::uint8_t {
  Enforce,   ///< In mode Checked.
  Validate,  ///< In mode Validate.
  Auto,      ///< In mode Unchecked.
};

inline constexpr std::array<std::string_view, 3> check_mode_names{"enforce", "validate", "auto"};
static_assert(check_mode_names.size() == static_cast<std::size_t>(CheckMode::Auto) + 1);

/// The execution mode of a launch that requested mode Unchecked.
[[nodiscard]] constexpr ExecutionMode unchecked_mode(CheckMode mode) noexcept {
  constexpr std::array modes{ExecutionMode::Checked, ExecutionMode::Validate, ExecutionMode::Unchecked};
  static_assert(modes.size() == check_mode_names.size());
  return modes[static_cast<std::size_t>(mode)];
}

}  // namespace cox
