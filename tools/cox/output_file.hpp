#pragma once

#include <string>
#include <string_view>

namespace cox::tools {

/// Throws ArgumentError, which names `option`, unless the file can be written; leaves it as it is.
void require_writable(std::string_view option, const std::string& path);

/// Replaces what the file holds. Returns whether all of `text` arrived.
[[nodiscard]] bool write_file(const std::string& path, const std::string& text);

}  // namespace cox::tools
