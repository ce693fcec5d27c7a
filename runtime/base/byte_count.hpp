#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace cox {

/// Formats a size for a human reader, in decimal units and exact: "96 B", "1.50 kB (1500 B)", "1.07 GB (1073741824 B)".
[[nodiscard]] std::string format_byte_count(std::size_t bytes);

/// Formats a size in the syntax of parse_byte_count, with the largest binary unit that divides it: "1000B", "64MiB".
[[nodiscard]] std::string exact_byte_count(std::size_t bytes);

/// Parses "64", "64B", "4KiB", "1MiB", "2GiB", "64KB", "1MB" or "2GB"; returns bytes. Returns nullopt if `text` has
/// another form or the value overflows.
[[nodiscard]] std::optional<std::size_t> parse_byte_count(std::string_view text);

}  // namespace cox
