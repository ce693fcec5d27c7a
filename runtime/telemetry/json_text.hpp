#pragma once

#include <string>
#include <string_view>

namespace cox::detail {

/// `text` as a JSON string, quotation marks included. What is not UTF-8 becomes U+FFFD.
[[nodiscard]] std::string json_text(std::string_view text);

}  // namespace cox::detail
