#pragma once

#include <compare>
#include <cstdint>
#include <string>

namespace cox::stress {

/// Numbers the closures of one client, ascending in the order of its calls: up to 16 for each of its operations. Zero
/// is before all of them.
struct Sequence {
  std::uint64_t value = 0;

  static constexpr std::uint64_t steps = 16;

  /// The `step`th closure of an operation.
  [[nodiscard]] static constexpr Sequence of(std::uint64_t operation, std::uint64_t step) noexcept {
    return {(operation + 1) * steps + step};
  }
  [[nodiscard]] constexpr bool none() const noexcept { return value == 0; }
  [[nodiscard]] constexpr std::uint64_t operation() const noexcept { return value / steps - 1; }
  [[nodiscard]] constexpr std::uint64_t step() const noexcept { return value % steps; }

  friend constexpr auto operator<=>(Sequence, Sequence) = default;
};

/// "operation 4711" or "step 2 of operation 4711".
[[nodiscard]] inline std::string to_string(Sequence sequence) {
  if (sequence.none()) return "nothing";
  const std::string operation = "operation " + std::to_string(sequence.operation());
  return sequence.step() == 0 ? operation : "step " + std::to_string(sequence.step()) + " of " + operation;
}

}  // namespace cox::stress
