#pragma once

#include <coxswain/runtime/base/byte_count.hpp>

#include <cstddef>
#include <string>

namespace cox::tools {

/// "261.51 MB": the result of format_byte_count() without the exact number in parentheses.
[[nodiscard]] inline std::string short_byte_count(std::size_t bytes) {
  const std::string text = format_byte_count(bytes);
  return text.substr(0, text.find(" ("));
}

}  // namespace cox::tools
