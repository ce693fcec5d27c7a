#pragma once

#include <map>
#include <string>
#include <string_view>

namespace cox {

/// Environment variables by name.
using SettingsEnvironment = std::map<std::string, std::string>;

/// The variable that names the settings file; it is not a setting itself.
inline constexpr std::string_view settings_file_variable = "COX_CONFIG";
/// The prefix of the variables of the library. Not every variable with this prefix belongs to it: COX_JOBS is for
/// tools/dev.
inline constexpr std::string_view settings_variable_prefix = "COX_";

/// The variables of the process that have this prefix. No other thread may change the environment during the call.
[[nodiscard]] SettingsEnvironment process_environment();

}  // namespace cox
