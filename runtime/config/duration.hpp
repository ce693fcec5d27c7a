#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

namespace cox {

/// Formats a duration with the largest of the units ns, us, ms, s, min and h that divides it: "20us".
[[nodiscard]] std::string format_duration(std::chrono::nanoseconds duration);

/// Parses a whole, non-negative number that is followed by one of these units. Returns nullopt if `text` has another
/// form or the duration overflows.
[[nodiscard]] std::optional<std::chrono::nanoseconds> parse_duration(std::string_view text);

}  // namespace cox
