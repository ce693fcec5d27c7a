#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace cox {

/// How much is recorded about launches; all of it goes to the log. Each level from Basic on includes the levels before
/// it, except for the line of Minimal.
enum class ProfileLevel : std::uint8_t {
  Disabled,  ///< Nothing.
  Minimal,   ///< A line for each launch, when it is queued. Nothing is measured.
  Basic,     ///< Launches are measured, so that each blocks for the device thread; a table at sync.
  Medium,    ///< A line for each measured duration.
  Full,      ///< Names contain the kernel and its cube count. Launches that have both in common share a row.
};

inline constexpr std::array<std::string_view, 5> profile_level_names{"disabled", "minimal", "basic", "medium", "full"};
static_assert(profile_level_names.size() == static_cast<std::size_t>(ProfileLevel::Full) + 1);

}  // namespace cox
