#pragma once

#include <cstddef>
#include <string>

namespace cox {

/// A size for people, in decimal units and exact: "96 B", "1.50 kB (1500 B)", "1.07 GB (1073741824 B)".
[[nodiscard]] std::string format_byte_count(std::size_t bytes);

}  // namespace cox
