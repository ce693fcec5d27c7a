#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace cox::stress {

/// What a run checks: laws of the design, and that the devices compute the right results.
enum class Law : std::uint8_t {
  Order,
  Conservation,
  Promptness,
  Closed,
  Isolation,
  Lifetime,
  Identity,
  Deadlock,
  Exclusion,
  Data,
  Errors,
  Teardown,
  Poison,
};

inline constexpr std::array<std::string_view, 13> law_names{
    "L1 order",    "L2 conservation",        "L3 promptness",       "L4 closed", "L5 isolation",    "L6 lifetime",
    "L9 identity", "L10 no silent deadlock", "L1 order, exclusive", "data",      "L12 errors kept", "L13 teardown",
    "L14 poison"};
static_assert(law_names.size() == static_cast<std::size_t>(Law::Poison) + 1);

[[nodiscard]] constexpr std::string_view to_string(Law law) noexcept {
  return law_names[static_cast<std::size_t>(law)];
}

}  // namespace cox::stress
