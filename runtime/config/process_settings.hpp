#pragma once

#include <coxswain/runtime/config/settings.hpp>

#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <utility>

namespace cox {

/// What is in force in the process. File and environment are read once, by the first call of any thread; where they are
/// wrong, this and every later call throw ConfigError. Takes a lock, and no memory once they have been read.
[[nodiscard]] Settings settings();

/// Sets from code, all or none: `set_settings({{"host.devices", 8U}, {"host.memory", "64MiB"}})`. Throws ConfigError.
/// What is open or running keeps what it was made with; see apply_settings for when the rest takes it up. Any thread.
void set_settings(std::initializer_list<std::pair<std::string_view, SettingValue>> values);

/// Takes back what code has set: environment, file and default show again. Throws ConfigError UnknownKey. Any thread.
void reset_settings(std::initializer_list<std::string_view> keys);

/// Has file and environment read again by the next call of settings(). What code has set stays.
void reload_settings() noexcept;

namespace detail {
/// Is another figure after each call that may have changed settings(). Never 0.
[[nodiscard]] std::uint64_t settings_version() noexcept;
}  // namespace detail

}  // namespace cox
