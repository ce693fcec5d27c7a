#pragma once

#include <coxswain/runtime/config/settings.hpp>

#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <utility>

namespace cox {

/// Returns the settings in effect in the process. File and environment are read once, by the first call on any thread;
/// if they are invalid, this and later calls throw ConfigError. Takes a lock. Allocates only in the first call and in
/// the first call after a change.
[[nodiscard]] Settings settings();

/// Sets values from code, all or none: `set_settings({{"host.devices", 8U}, {"host.memory", "64MiB"}})`. Throws
/// ConfigError. Open devices and running threads keep the values that they were created with; apply_settings says when
/// the others use the new values. Any thread.
void set_settings(std::initializer_list<std::pair<std::string_view, SettingValue>> values);

/// Removes values that code has set: environment, file and default apply again. Throws ConfigError UnknownKey. Any
/// thread.
void reset_settings(std::initializer_list<std::string_view> keys);

/// Makes the next call of settings() read file and environment again. Values that code has set stay.
void reload_settings() noexcept;

namespace detail {
/// A number that is different after each call that may have changed settings(). Never 0.
[[nodiscard]] std::uint64_t settings_version() noexcept;
}  // namespace detail

}  // namespace cox
