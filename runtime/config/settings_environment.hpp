#pragma once

#include <coxswain/runtime/config/setting_value.hpp>

#include <array>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace cox {

/// Environment variables by name.
using SettingsEnvironment = std::map<std::string, std::string>;

/// The variable that names the settings file; it is not a setting itself.
inline constexpr std::string_view settings_file_variable = "COX_CONFIG";
/// Variables that describe one process of a world and are set by its launcher; no settings either.
inline constexpr std::array<std::string_view, 8> world_variables{
    "COX_WORLD",     "COX_WORLD_PROCESS", "COX_WORLD_PROCESSES", "COX_WORLD_LOCAL_PROCESS", "COX_WORLD_LOCAL_PROCESSES",
    "COX_WORLD_RUN", "COX_WORLD_RESTART", "COX_WORLD_TOKEN"};
/// The prefix of the variables of the library. Not every variable with this prefix belongs to it: COX_JOBS is for
/// tools/dev.
inline constexpr std::string_view settings_variable_prefix = "COX_";

/// The variables of the process that have this prefix. No other thread may change the environment during the call.
[[nodiscard]] SettingsEnvironment process_environment();

namespace detail {
/// The settings in the environment. Throws ConfigError for an invalid value, and for a variable that is not a setting
/// but can only be meant as one: it is or begins with a section (COX_HOST, COX_LOG_..., COX_DEVICE_THREAD_...), or it
/// differs from a known name in at most two letters. Other variables that begin with COX_ are ignored.
[[nodiscard]] std::vector<GivenSetting> parse_environment(const SettingsEnvironment& environment);
}  // namespace detail

}  // namespace cox
