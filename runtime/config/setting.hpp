#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace cox {

/// The type of the value of a setting.
enum class SettingType : std::uint8_t {
  Boolean,
  Count,
  ByteSize,
  Duration,
  Text,
  LogLevel,
  QueuePolicy,
  ProfileLevel,
  CheckMode
};

/// The description of one setting: its names, its allowed values and its default. The value in effect is in Settings.
struct Setting {
  std::string_view key;          ///< "host.devices": in the file `devices` of the table `host`
  std::string_view environment;  ///< name of the environment variable: "COX_HOST_DEVICES"
  SettingType type;
  std::uint64_t minimum;      ///< smallest count, size in bytes or duration in nanoseconds
  std::uint64_t maximum;      ///< largest, in the same unit
  std::string_view standard;  ///< default value, in the syntax of the environment variable
  std::string_view follows;   ///< key of the setting whose value is the default, instead of `standard`; may be empty
  std::string_view documentation;  ///< one line
};

/// All settings, in the order in which they are displayed.
[[nodiscard]] std::span<const Setting> known_settings() noexcept;

/// The setting with that key. Throws ConfigError UnknownKey, which names the nearest key.
[[nodiscard]] const Setting& find_setting(std::string_view key);

/// The known key with the smallest edit distance from `key`.
[[nodiscard]] std::string_view nearest_key(std::string_view key);

namespace detail {
/// The least number of letters to insert, remove or change that turns `from` into `to` (Levenshtein distance).
[[nodiscard]] std::size_t edit_distance(std::string_view from, std::string_view to);
}  // namespace detail

}  // namespace cox
