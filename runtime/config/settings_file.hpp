#pragma once

#include <coxswain/runtime/config/settings_environment.hpp>

#include <optional>
#include <string>

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

}  // namespace cox
