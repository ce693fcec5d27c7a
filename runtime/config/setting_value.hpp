#pragma once

#include <coxswain/device_handle/base/queue_policy.hpp>
#include <coxswain/runtime/base/execution_mode.hpp>
#include <coxswain/runtime/config/config_error.hpp>
#include <coxswain/runtime/config/profile_level.hpp>
#include <coxswain/runtime/config/setting.hpp>
#include <coxswain/runtime/error/log_level.hpp>

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

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

/// The value of a setting. Counts and sizes (in bytes) are std::uint64_t.
using SettingValue = std::variant<bool, std::uint64_t, std::chrono::nanoseconds, std::string, LogLevel, QueuePolicy,
                                  ProfileLevel, CheckMode>;

/// Describes the allowed values: "a whole number from 1 to 65535".
[[nodiscard]] std::string expectation(const Setting& setting);

/// Parses `text`, which has the syntax of an environment variable: "true" (on, 1), "4", "64MiB", "20us", "warn". Throws
/// ConfigError.
[[nodiscard]] SettingValue parse_setting_value(const Setting& setting, std::string_view text,
                                               const SettingSource& source);

/// Returns `value` if the setting allows it. Text is parsed, unless it is the type of the setting. Throws ConfigError.
[[nodiscard]] SettingValue checked_setting_value(const Setting& setting, SettingValue value,
                                                 const SettingSource& source);

/// Formats `value` in the syntax of parse_setting_value.
[[nodiscard]] std::string to_string(const Setting& setting, const SettingValue& value);

/// The error for an invalid value, which `text` shows.
[[nodiscard]] ConfigError bad_setting_value(ConfigError::Kind kind, const Setting& setting, const std::string& text,
                                            const SettingSource& source);

/// Returns `text` in quotation marks, as one line of limited length, for messages.
[[nodiscard]] std::string in_quotes(std::string_view text);

namespace detail {
/// The value of a setting that a file or the environment contains.
struct GivenSetting {
  const Setting* setting;
  SettingValue value;
  SettingSource source;
};
}  // namespace detail

}  // namespace cox
