#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace cox {

/// What the value of a setting is.
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

/// One thing that can be set: what it is called, what it may be, what it is if nobody sets it. The value that is in
/// force is in Settings.
struct Setting {
  std::string_view key;          ///< "host.devices": in the file `devices` of the table `host`
  std::string_view environment;  ///< the same as an environment variable: "COX_HOST_DEVICES"
  SettingType type;
  std::uint64_t minimum;           ///< of counts; of sizes in bytes; of durations in nanoseconds
  std::uint64_t maximum;           ///< the same
  std::string_view standard;       ///< the default, as the environment would have it
  std::string_view follows;        ///< key of the setting whose value this one has by default, instead of `standard`
  std::string_view documentation;  ///< one line
};

/// All there are, in the order in which they are shown.
[[nodiscard]] std::span<const Setting> known_settings() noexcept;

/// The setting of that key. Throws ConfigError UnknownKey, which names the nearest.
[[nodiscard]] const Setting& find_setting(std::string_view key);

/// The known key that is fewest letters away from `key`.
[[nodiscard]] std::string_view nearest_key(std::string_view key);

/// What a value may be: "a whole number from 1 to 65535".
[[nodiscard]] std::string expectation(const Setting& setting);

}  // namespace cox
