#pragma once

#include <cstdint>
#include <string>

namespace cox {

/// Where the value of a setting comes from. A later kind takes precedence over an earlier one.
struct SettingSource {
  enum class Kind : std::uint8_t { Default, File, Environment, Code };

  Kind kind = Kind::Default;
  std::string name{};        ///< name of the file or variable; key of the setting that a default follows
  std::uint32_t line = 0;    ///< line in the file, from 1
  std::uint32_t column = 0;  ///< column in the line, from 1

  friend bool operator==(const SettingSource&, const SettingSource&) = default;
};

/// "default", "default (as log.level)", "coxswain.toml:3:11", "environment COX_HOST_DEVICES", "code".
[[nodiscard]] inline std::string to_string(const SettingSource& source) {
  switch (source.kind) {
    case SettingSource::Kind::Default: return source.name.empty() ? "default" : "default (as " + source.name + ")";
    case SettingSource::Kind::File:
      return source.name + ":" + std::to_string(source.line) + ":" + std::to_string(source.column);
    case SettingSource::Kind::Environment: return "environment " + source.name;
    case SettingSource::Kind::Code: return "code";
  }
  return {};
}

}  // namespace cox
