#pragma once

#include <coxswain/runtime/config/given_setting.hpp>
#include <coxswain/runtime/config/settings_environment.hpp>

#include <vector>

namespace cox::detail {

/// The settings in the environment. Throws ConfigError for an invalid value, and for a variable that is not a setting
/// but can only be meant as one: it is or begins with a section (COX_HOST, COX_LOG_..., COX_DEVICE_THREAD_...), or it
/// differs from a known name in at most two letters. Other variables that begin with COX_ are ignored.
[[nodiscard]] std::vector<GivenSetting> parse_environment(const SettingsEnvironment& environment);

}  // namespace cox::detail
