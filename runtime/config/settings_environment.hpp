#pragma once

#include <map>
#include <string>
#include <string_view>

namespace cox {

/// Environment variables by name.
using SettingsEnvironment = std::map<std::string, std::string>;

/// Names the settings file; no setting itself.
inline constexpr std::string_view settings_file_variable = "COX_CONFIG";
/// What the variables that concern us begin with. Not all that begin so do: COX_JOBS is for tools/dev.
inline constexpr std::string_view settings_variable_prefix = "COX_";

/// The variables of the process whose names begin so. Nobody may change the environment meanwhile.
[[nodiscard]] SettingsEnvironment process_environment();

}  // namespace cox
