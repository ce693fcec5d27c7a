#pragma once

#include <string_view>

namespace cox::tools {

/// The version of the project, as in CMakeLists.txt.
inline constexpr std::string_view version = "0.1.0";

}  // namespace cox::tools
