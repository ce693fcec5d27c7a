#pragma once

#include <coxswain/runtime/config/config_error.hpp>
#include <coxswain/runtime/config/setting.hpp>
#include <coxswain/runtime/config/setting_source.hpp>
#include <coxswain/runtime/config/setting_value.hpp>
#include <coxswain/runtime/config/settings_environment.hpp>
#include <coxswain/runtime/config/settings_file.hpp>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace cox {

/// What settings are read from.
struct SettingsOrigin {
  std::optional<SettingsFile> file;
  SettingsEnvironment environment;

  /// Those of the process. Throws ConfigError Unreadable.
  [[nodiscard]] static SettingsOrigin of_process();
};

/// A value for every known setting, each with where it comes from: code > environment > file > default. A value type,
/// whose copies share what they have in common and throw nothing; the settings that are in force in the process:
/// process_settings.hpp.
class Settings {
 public:
  /// All defaults.
  Settings();
  /// `chosen`: values by code, by key. Throws ConfigError, with the setting, the place and what is expected there, for
  /// whatever is not as it must be; and OutOfRange if a file that was merely found in the working directory names a
  /// library to load, unless environment or code give that setting.
  explicit Settings(const SettingsOrigin& origin, const std::map<std::string, SettingValue, std::less<>>& chosen = {});

  /// T: bool, std::uint64_t (counts, and sizes in bytes), std::chrono::nanoseconds, std::string, LogLevel,
  /// QueuePolicy, ProfileLevel or CheckMode. Throws ConfigError UnknownKey, Malformed (the setting is not of that
  /// type).
  template <class T>
  [[nodiscard]] T get(std::string_view key) const {
    const Setting& setting = find_setting(key);
    if (const T* const value = std::get_if<T>(&this->value(setting))) return *value;
    throw ConfigError(ConfigError::Kind::Malformed,
                      std::string(key) + " was asked for as another type than it has: " + expectation(setting));
  }
  /// Whether anything but a default stands there. Throws ConfigError UnknownKey.
  [[nodiscard]] bool given(std::string_view key) const;
  /// Sets from code. Text is parsed. Throws ConfigError.
  void set(std::string_view key, SettingValue value);

  /// `setting` is one of known_settings().
  [[nodiscard]] const SettingValue& value(const Setting& setting) const;
  [[nodiscard]] SettingSource source(const Setting& setting) const;

  /// The name of the file that was read.
  [[nodiscard]] const std::optional<std::string>& file() const noexcept { return values_->file; }

 private:
  struct Entry {
    SettingValue value;
    SettingSource source;
  };

  struct Values {
    std::vector<Entry> entries;  // in the order of known_settings()
    std::optional<std::string> file;
  };

  void require_no_library_from_file() const;
  [[nodiscard]] Values& own_values();
  [[nodiscard]] Entry& own_entry(const Setting& setting);
  [[nodiscard]] const Entry& entry(const Setting& setting) const;

  std::shared_ptr<const Values> values_;  // changed only while no copy shares them
};

}  // namespace cox
