#include <coxswain/runtime/config/settings_environment.hpp>

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <limits>

namespace cox {
namespace {

using detail::edit_distance;

constexpr std::size_t slip_of_the_pen = 2;  // letters

struct Nearest {
  std::string_view name;
  std::size_t distance;
};

// Returns "COX_HOST" for COX_HOST_DEVICES.
std::string_view variable_section(const Setting& setting) {
  return setting.environment.substr(0, settings_variable_prefix.size() + setting.key.find('.'));
}

bool in_section(std::string_view name, const Setting& setting) {
  return name.starts_with(variable_section(setting)) && name.substr(variable_section(setting).size()).starts_with('_');
}

bool in_known_section(std::string_view name) {
  return std::ranges::any_of(known_settings(), [&](const Setting& setting) { return in_section(name, setting); });
}

// Searches only the section that `name` begins with, if `name` begins with a section.
Nearest nearest_variable(std::string_view name) {
  const bool in_one_section = in_known_section(name);
  Nearest nearest{settings_file_variable, edit_distance(name, settings_file_variable)};
  if (in_one_section) nearest.distance = std::numeric_limits<std::size_t>::max();
  for (const std::string_view known : world_variables) {
    const std::size_t distance = edit_distance(name, known);
    if (distance <= slip_of_the_pen && distance < nearest.distance) nearest = {known, distance};
  }
  for (const Setting& setting : known_settings()) {
    if (in_one_section && !in_section(name, setting)) continue;
    if (name == variable_section(setting)) return {setting.environment, 0};  // the first setting of the section
    const std::size_t distance = edit_distance(name, setting.environment);
    if (distance < nearest.distance) nearest = {setting.environment, distance};
  }
  return nearest;
}

void refuse_if_meant_for_us(const std::string& name, const std::string& text) {
  const Nearest nearest = nearest_variable(name);
  if (nearest.distance > slip_of_the_pen && !in_known_section(name)) return;
  throw ConfigError(ConfigError::Kind::UnknownKey, "environment " + name + " is " + in_quotes(text) +
                                                       ": there is no such setting; the nearest is " +
                                                       std::string(nearest.name));
}

}  // namespace

SettingsEnvironment process_environment() {
  SettingsEnvironment environment;
  for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable) {
    const std::string_view text(*variable);
    const std::size_t equals = text.find('=');
    if (text.starts_with(settings_variable_prefix) && equals != std::string_view::npos)
      environment.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return environment;
}

std::vector<detail::GivenSetting> detail::parse_environment(const SettingsEnvironment& environment) {
  std::vector<GivenSetting> given;
  for (const auto& [name, text] : environment) {
    if (!name.starts_with(settings_variable_prefix) || name == settings_file_variable) continue;
    if (std::ranges::find(world_variables, name) != world_variables.end()) continue;
    const auto settings = known_settings();
    const auto found = std::ranges::find(settings, name, &Setting::environment);
    if (found == settings.end()) {
      refuse_if_meant_for_us(name, text);
      continue;
    }
    const SettingSource source{.kind = SettingSource::Kind::Environment, .name = name};
    given.push_back({&*found, parse_setting_value(*found, text, source), source});
  }
  return given;
}

}  // namespace cox
