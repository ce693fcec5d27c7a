#pragma once

#include <coxswain/runtime/config/given_setting.hpp>
#include <coxswain/runtime/config/settings_file.hpp>

#include <vector>

namespace cox::detail {

/// The settings in the file. Throws ConfigError, with the name of the file, line and column, for text that is not TOML,
/// for a key that is not a setting and for an invalid value.
[[nodiscard]] std::vector<GivenSetting> parse_settings_file(const SettingsFile& file);

}  // namespace cox::detail
