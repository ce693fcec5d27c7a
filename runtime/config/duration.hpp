#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

namespace cox {

/// "20us": the largest of the units ns, us, ms, s, min and h that divides it.
[[nodiscard]] std::string format_duration(std::chrono::nanoseconds duration);

/// The other way round: a whole number and its unit, not negative. Nothing if `text` is not that or is too long a time.
[[nodiscard]] std::optional<std::chrono::nanoseconds> parse_duration(std::string_view text);

}  // namespace cox
