#pragma once

#include <coxswain/device_handle/base/queue_policy.hpp>
#include <coxswain/runtime/config/check_mode.hpp>
#include <coxswain/runtime/config/config_error.hpp>
#include <coxswain/runtime/config/profile_level.hpp>
#include <coxswain/runtime/config/setting.hpp>
#include <coxswain/runtime/config/setting_source.hpp>
#include <coxswain/runtime/error/log_level.hpp>

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

namespace cox {

/// The value of a setting. Counts and sizes (in bytes) are std::uint64_t.
using SettingValue = std::variant<bool, std::uint64_t, std::chrono::nanoseconds, std::string, LogLevel, QueuePolicy,
                                  ProfileLevel, CheckMode>;

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

}  // namespace cox
