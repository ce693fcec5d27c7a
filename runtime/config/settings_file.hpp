#pragma once

#include <coxswain/runtime/config/setting_value.hpp>
#include <coxswain/runtime/config/settings_environment.hpp>

#include <optional>
#include <string>
#include <vector>

namespace cox {

/// The name and the content of a settings file.
struct SettingsFile {
  std::string name;  ///< the name used in messages
  std::string text;  ///< TOML
  /// Found in the working directory and not named by COX_CONFIG: the file may not name a library to load.
  bool is_found = false;
};

/// Reads the file that COX_CONFIG names, else ./coxswain.toml if it exists (is_found is then true). Throws ConfigError
/// Unreadable.
[[nodiscard]] std::optional<SettingsFile> read_settings_file(const SettingsEnvironment& environment);

namespace detail {
/// The settings in the file. Throws ConfigError, with the name of the file, line and column, for text that is not TOML,
/// for a key that is not a setting and for an invalid value.
[[nodiscard]] std::vector<GivenSetting> parse_settings_file(const SettingsFile& file);
}  // namespace detail

}  // namespace cox
