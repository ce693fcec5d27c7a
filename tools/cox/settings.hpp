#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace cox::tools {

/// One part of "name=value,name=value".
struct Setting {
  std::string_view name;
  std::string_view value;
};

/// Parses "name=value,name=value". The result refers to `text`. Throws ArgumentError, which names `option`, for a part
/// without a name or without a value, and for a repeated name.
[[nodiscard]] std::vector<Setting> parse_settings(std::string_view option, std::string_view text);

/// Throws ArgumentError unless `text` is a whole number from `minimum` to `maximum`.
[[nodiscard]] std::uint64_t parse_count(std::string_view option, std::string_view text, std::uint64_t minimum,
                                        std::uint64_t maximum);

/// Throws ArgumentError unless `text` is a number.
[[nodiscard]] double parse_number(std::string_view option, std::string_view text);

/// Throws ArgumentError unless `text` is a number of seconds: more than 0, at most 100,000,000.
[[nodiscard]] std::chrono::duration<double> parse_seconds(std::string_view option, std::string_view text);

/// Throws ArgumentError unless `text` is a number from 0 to 1.
[[nodiscard]] double parse_probability(std::string_view option, std::string_view text);

/// Parses a size as parse_byte_count() does; returns bytes. Throws ArgumentError if `text` is not a size.
[[nodiscard]] std::size_t parse_size(std::string_view option, std::string_view text);

/// Parses a time as parse_duration() does. Throws ArgumentError if `text` is not a time or is less than `minimum`.
[[nodiscard]] std::chrono::nanoseconds parse_time(std::string_view option, std::string_view text,
                                                  std::chrono::nanoseconds minimum);

/// "'a', 'b' or 'c'", for messages.
[[nodiscard]] std::string one_of(const std::vector<std::string_view>& names);

}  // namespace cox::tools
