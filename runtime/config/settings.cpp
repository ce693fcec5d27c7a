#include <coxswain/runtime/config/settings.hpp>

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace cox {

SettingsOrigin SettingsOrigin::of_process() {
  SettingsEnvironment environment = process_environment();
  auto file = read_settings_file(environment);
  return {.file = std::move(file), .environment = std::move(environment)};
}

Settings::Settings() : values_(std::make_shared<Values>()) {
  std::vector<Entry>& entries = own_values().entries;
  entries.reserve(known_settings().size());
  for (const Setting& setting : known_settings()) {
    if (setting.follows.empty()) {
      entries.push_back({parse_setting_value(setting, setting.standard, {}), {}});
    } else {
      entries.push_back({{}, {.name = std::string(setting.follows)}});  // value() resolves it
    }
  }
}

Settings::Settings(const SettingsOrigin& origin, const std::map<std::string, SettingValue, std::less<>>& chosen)
    : Settings() {
  const auto take = [this](std::vector<detail::GivenSetting> given) {
    for (auto& each : given) own_entry(*each.setting) = {std::move(each.value), std::move(each.source)};
  };
  if (origin.file) {
    take(detail::parse_settings_file(*origin.file));
    own_values().file = origin.file->name;
  }
  take(detail::parse_environment(origin.environment));
  for (const auto& [key, value] : chosen) set(key, value);
  if (origin.file && origin.file->is_found) require_no_library_from_file();
}

// A file that was only found in the working directory is not trusted: a library that it names would run code of the
// file's author.
void Settings::require_no_library_from_file() const {
  for (const std::string_view key :
       {"cuda.driver", "cuda.nvml", "compilation.nvrtc", "collectives.nccl", "world.pmix"}) {
    const Setting& setting = find_setting(key);
    const auto& [value, source] = entry(setting);
    const auto* const text = std::get_if<std::string>(&value);
    if (source.kind != SettingSource::Kind::File || text == nullptr || text->empty()) continue;
    throw ConfigError(ConfigError::Kind::OutOfRange,
                      std::string(key) + " is " + in_quotes(*text) + " (" + to_string(source) +
                          "): a coxswain.toml that is found in the working directory may not name a library; set "
                          "COX_CONFIG to that file, or " +
                          std::string(setting.environment) + ", or call set_settings");
  }
}

bool Settings::given(std::string_view key) const {
  return entry(find_setting(key)).source.kind != SettingSource::Kind::Default;
}

void Settings::set(std::string_view key, SettingValue value) {
  const Setting& setting = find_setting(key);
  const SettingSource source{.kind = SettingSource::Kind::Code};
  own_entry(setting) = {checked_setting_value(setting, std::move(value), source), source};
}

const SettingValue& Settings::value(const Setting& setting) const {
  const Entry& own = entry(setting);
  const bool follows = own.source.kind == SettingSource::Kind::Default && !setting.follows.empty();
  return follows ? value(find_setting(setting.follows)) : own.value;
}

SettingSource Settings::source(const Setting& setting) const { return entry(setting).source; }

Settings::Values& Settings::own_values() {
  if (values_.use_count() != 1) values_ = std::make_shared<Values>(*values_);
  return const_cast<Values&>(*values_);  // created non-const, and not shared
}

Settings::Entry& Settings::own_entry(const Setting& setting) {
  return own_values().entries[static_cast<std::size_t>(&setting - known_settings().data())];
}

const Settings::Entry& Settings::entry(const Setting& setting) const {
  return values_->entries[static_cast<std::size_t>(&setting - known_settings().data())];
}

}  // namespace cox
