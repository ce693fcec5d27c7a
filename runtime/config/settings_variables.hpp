#pragma once

#include <coxswain/runtime/config/given_setting.hpp>
#include <coxswain/runtime/config/settings_environment.hpp>

#include <vector>

namespace cox::detail {

/// What the environment gives. Throws ConfigError for a value that cannot be, and for a variable that can only be meant
/// as a setting and is none: COX_HOST, COX_LOG_..., COX_DEVICE_THREAD_..., or at most two letters off a known name.
/// Other variables that begin with COX_ belong to somebody else.
[[nodiscard]] std::vector<GivenSetting> parse_environment(const SettingsEnvironment& environment);

}  // namespace cox::detail
