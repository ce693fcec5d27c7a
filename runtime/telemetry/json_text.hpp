#pragma once

#include <string>
#include <string_view>

namespace cox::detail {

/// `text` as a JSON string, quotation marks included. Each byte that is not part of valid UTF-8 becomes U+FFFD.
[[nodiscard]] std::string json_text(std::string_view text);

}  // namespace cox::detail
