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

/// What `text` says, as the environment has it: "true" (on, 1), "4", "64MiB", "20us", "warn". Throws ConfigError.
[[nodiscard]] SettingValue parse_setting_value(const Setting& setting, std::string_view text,
                                               const SettingSource& source);

/// `value`, if it is one that the setting may have; text is parsed where the setting is none. Throws ConfigError.
[[nodiscard]] SettingValue checked_setting_value(const Setting& setting, SettingValue value,
                                                 const SettingSource& source);

/// As parse_setting_value reads it.
[[nodiscard]] std::string to_string(const Setting& setting, const SettingValue& value);

/// The error for a value that `text` shows.
[[nodiscard]] ConfigError bad_setting_value(ConfigError::Kind kind, const Setting& setting, const std::string& text,
                                            const SettingSource& source);

/// `text` in quotation marks, cut to one line of some length, for messages.
[[nodiscard]] std::string in_quotes(std::string_view text);

}  // namespace cox
