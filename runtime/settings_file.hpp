#pragma once

#include <coxswain/runtime/settings_environment.hpp>

#include <optional>
#include <string>

namespace cox {

/// A settings file as it was read.
struct SettingsFile {
  std::string name;  ///< as messages call it
  std::string text;  ///< TOML
};

/// The file that COX_CONFIG names, else ./coxswain.toml if there is one. Throws ConfigError Unreadable.
[[nodiscard]] std::optional<SettingsFile> read_settings_file(const SettingsEnvironment& environment);

}  // namespace cox
