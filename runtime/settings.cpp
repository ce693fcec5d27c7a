#include <coxswain/runtime/settings.hpp>

#include <coxswain/runtime/detail/settings_toml.hpp>
#include <coxswain/runtime/detail/settings_variables.hpp>

#include <cstddef>
#include <utility>

namespace cox {

SettingsOrigin SettingsOrigin::of_process() {
  SettingsEnvironment environment = process_environment();
  auto file = read_settings_file(environment);
  return {.file = std::move(file), .environment = std::move(environment)};
}

Settings::Settings() {
  entries_.reserve(known_settings().size());
  for (const Setting& setting : known_settings()) {
    if (setting.follows.empty()) {
      entries_.push_back({parse_setting_value(setting, setting.standard, {}), {}});
    } else {
      entries_.push_back({{}, {.name = std::string(setting.follows)}});  // value() looks there
    }
  }
}

Settings::Settings(const SettingsOrigin& origin) : Settings() {
  const auto take = [this](std::vector<detail::GivenSetting> given) {
    for (auto& each : given) entry(*each.setting) = {std::move(each.value), std::move(each.source)};
  };
  if (origin.file) {
    take(detail::parse_settings_file(*origin.file));
    file_ = origin.file->name;
  }
  take(detail::parse_environment(origin.environment));
}

bool Settings::given(std::string_view key) const {
  return entry(find_setting(key)).source.kind != SettingSource::Kind::Default;
}

void Settings::set(std::string_view key, SettingValue value) {
  const Setting& setting = find_setting(key);
  const SettingSource source{.kind = SettingSource::Kind::Code};
  entry(setting) = {checked_setting_value(setting, std::move(value), source), source};
}

const SettingValue& Settings::value(const Setting& setting) const {
  const Entry& own = entry(setting);
  const bool follows = own.source.kind == SettingSource::Kind::Default && !setting.follows.empty();
  return follows ? value(find_setting(setting.follows)) : own.value;
}

SettingSource Settings::source(const Setting& setting) const { return entry(setting).source; }

Settings::Entry& Settings::entry(const Setting& setting) {
  return entries_[static_cast<std::size_t>(&setting - known_settings().data())];
}

const Settings::Entry& Settings::entry(const Setting& setting) const {
  return entries_[static_cast<std::size_t>(&setting - known_settings().data())];
}

}  // namespace cox
