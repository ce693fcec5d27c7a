#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace cox {

/// The severity of a message, and the minimum severity that a subsystem logs.
enum class LogLevel : std::uint8_t { Trace, Debug, Info, Warn, Error, Off };

inline constexpr std::array<std::string_view, 6> log_level_names{"trace", "debug", "info", "warn", "error", "off"};
static_assert(log_level_names.size() == static_cast<std::size_t>(LogLevel::Off) + 1);

}  // namespace cox
