#pragma once

#include <coxswain/runtime/config/given_setting.hpp>
#include <coxswain/runtime/config/settings_file.hpp>

#include <vector>

namespace cox::detail {

/// What the file gives. Throws ConfigError, with the file's name, line and column, for text that is not TOML, for a key
/// that is no setting and for a value that cannot be.
[[nodiscard]] std::vector<GivenSetting> parse_settings_file(const SettingsFile& file);

}  // namespace cox::detail
