#pragma once

#include <coxswain/runtime/config/settings_environment.hpp>

#include <optional>
#include <string>

namespace cox {

/// A settings file as it was read.
struct SettingsFile {
  std::string name;  ///< as messages call it
  std::string text;  ///< TOML
  /// Found in the working directory, where COX_CONFIG did not name it: it may name no library to load.
  bool is_found = false;
};

/// The file that COX_CONFIG names, else ./coxswain.toml if there is one, which is_found. Throws ConfigError Unreadable.
[[nodiscard]] std::optional<SettingsFile> read_settings_file(const SettingsEnvironment& environment);

}  // namespace cox
