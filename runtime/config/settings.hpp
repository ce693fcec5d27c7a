#pragma once

#include <coxswain/runtime/config/config_error.hpp>
#include <coxswain/runtime/config/setting.hpp>
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

/// The sources of settings other than code.
struct SettingsOrigin {
  std::optional<SettingsFile> file;
  SettingsEnvironment environment;

  /// Reads the file and the environment of the process. Throws ConfigError Unreadable.
  [[nodiscard]] static SettingsOrigin of_process();
};

/// A value for every known setting, together with its source. Precedence: code > environment > file > default. A value
/// type; copies share their content until one of them changes, and copying does not throw. The settings in effect in
/// the process are in process_settings.hpp.
class Settings {
 public:
  /// All defaults.
  Settings();
  /// `chosen`: values set by code, by key. Throws ConfigError for an invalid key or value; the text names the setting,
  /// its source and what is expected. Throws ConfigError OutOfRange if a file that was found in the working directory
  /// (SettingsFile::is_found) names a library to load, unless the environment or code sets that setting.
  explicit Settings(const SettingsOrigin& origin, const std::map<std::string, SettingValue, std::less<>>& chosen = {});

  /// The value of a setting. T: bool, std::uint64_t (counts, and sizes in bytes), std::chrono::nanoseconds,
  /// std::string, LogLevel, QueuePolicy, ProfileLevel or CheckMode. Throws ConfigError UnknownKey, Malformed (the
  /// setting has another type).
  template <class T>
  [[nodiscard]] T get(std::string_view key) const {
    const Setting& setting = find_setting(key);
    if (const T* const value = std::get_if<T>(&this->value(setting))) return *value;
    throw ConfigError(
        ConfigError::Kind::Malformed,
        std::string(key) + " was requested as another type than its own; expected " + expectation(setting));
  }
  /// Whether the value comes from a source other than the default. Throws ConfigError UnknownKey.
  [[nodiscard]] bool given(std::string_view key) const;
  /// Sets a value from code. Text is parsed. Throws ConfigError.
  void set(std::string_view key, SettingValue value);

  /// `setting` is one of known_settings().
  [[nodiscard]] const SettingValue& value(const Setting& setting) const;
  [[nodiscard]] SettingSource source(const Setting& setting) const;

  /// The name of the settings file, if one was read.
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
