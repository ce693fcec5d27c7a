#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace cox {

/// A size for people, in decimal units and exact: "96 B", "1.50 kB (1500 B)", "1.07 GB (1073741824 B)".
[[nodiscard]] std::string format_byte_count(std::size_t bytes);

/// A size as parse_byte_count reads it, with the largest binary unit that divides it: "1000B", "64MiB".
[[nodiscard]] std::string exact_byte_count(std::size_t bytes);

/// "64", "64B", "4KiB", "1MiB", "2GiB", "64KB", "1MB", "2GB", in bytes. Nothing if `text` is not that or is too much.
[[nodiscard]] std::optional<std::size_t> parse_byte_count(std::string_view text);

}  // namespace cox
