#include <coxswain/runtime/config/settings_file.hpp>

#include <coxswain/runtime/base/byte_count.hpp>
#include <coxswain/runtime/config/config_error.hpp>

#include <toml++/toml.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace cox {
namespace {

using Kind = ConfigError::Kind;

constexpr const char* standard_name = "coxswain.toml";
constexpr const char* no_file = "/dev/null";
constexpr std::size_t largest_file = std::size_t{1} << 20U;  // bytes

SettingsFile read(const std::string& name, const std::string& whence) {
  const auto refuse = [&](const std::string& why) -> ConfigError {
    return {Kind::Unreadable, "the settings file " + in_quotes(name) + whence + " cannot be read: " + why};
  };
  std::error_code error;
  if (name == no_file) return {name, ""};
  const std::filesystem::file_status status = std::filesystem::status(name, error);
  if (std::filesystem::is_directory(status)) throw refuse("it is a directory");
  // Reading a pipe would block until it has a writer, and some devices never end.
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status))
    throw refuse("it is not a regular file");
  errno = 0;
  std::ifstream file(name, std::ios::binary);
  if (!file) throw refuse(std::generic_category().message(errno));
  std::string text(largest_file + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad()) throw refuse(std::generic_category().message(errno));
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (text.size() > largest_file) throw refuse("it is larger than " + format_byte_count(largest_file));
  return {name, std::move(text)};
}

// Formats a node for messages.
std::string shown(const toml::node& node) {
  if (node.is_table()) return "a table";
  if (node.is_array()) return "an array";
  if (const auto* const text = node.as_string()) return in_quotes(text->get());
  std::ostringstream out;
  out << std::boolalpha;
  node.visit([&](const auto& value) {
    if constexpr (requires { out << value.get(); }) out << value.get();
  });
  return out.str();
}

std::string_view section_of(const Setting& setting) { return setting.key.substr(0, setting.key.find('.')); }

std::string_view nearest_section(std::string_view name) {
  const auto distance = [&](const Setting& setting) { return detail::edit_distance(name, section_of(setting)); };
  return section_of(*std::ranges::min_element(known_settings(), {}, distance));
}

SettingValue value_of(const Setting& setting, const toml::node& node, const SettingSource& source) {
  const auto malformed = [&] { return bad_setting_value(Kind::Malformed, setting, shown(node), source); };
  if (const auto* const flag = node.as_boolean()) return checked_setting_value(setting, flag->get(), source);
  if (const auto* const number = node.as_integer()) {
    const bool counts = setting.type == SettingType::Count || setting.type == SettingType::ByteSize;
    if (counts && number->get() < 0) throw bad_setting_value(Kind::OutOfRange, setting, shown(node), source);
    if (!counts) throw malformed();
    return checked_setting_value(setting, static_cast<std::uint64_t>(number->get()), source);
  }
  const bool written_bare = setting.type == SettingType::Boolean || setting.type == SettingType::Count;
  if (const auto* const text = node.as_string(); text != nullptr && !written_bare)
    return parse_setting_value(setting, text->get(), source);
  throw malformed();
}

bool is_section(std::string_view name) {
  return std::ranges::any_of(known_settings(), [&](const Setting& setting) { return section_of(setting) == name; });
}

void add_settings(const toml::table& table, const std::string& section, const std::string& file,
                  std::vector<detail::GivenSetting>& given) {
  const auto source_at = [&](const toml::source_region& region) {
    return SettingSource{SettingSource::Kind::File, file, region.begin.line, region.begin.column};
  };
  for (const auto& [key, node] : table) {
    const std::string name = section + std::string(key.str());
    const auto settings = known_settings();
    if (const auto found = std::ranges::find(settings, name, &Setting::key); found != settings.end()) {
      const SettingSource source = source_at(node.source());
      given.push_back({&*found, value_of(*found, node, source), source});
    } else if (is_section(name)) {
      if (!node.is_table())
        throw ConfigError(Kind::Malformed, name + " is " + shown(node) + " (" + to_string(source_at(node.source())) +
                                               "): expected a table, [" + name + "]");
      add_settings(*node.as_table(), name + ".", file, given);
    } else {
      throw ConfigError(Kind::UnknownKey, name + " is " + shown(node) + " (" + to_string(source_at(key.source())) +
                                              "): there is no such setting; the nearest is " +
                                              std::string(node.is_table() ? nearest_section(name) : nearest_key(name)));
    }
  }
}

toml::table parse(const SettingsFile& file) {
  try {
    return toml::parse(file.text, file.name);
  } catch (const toml::parse_error& error) {
    const std::string why(error.description());
    const auto& begin = error.source().begin;
    throw ConfigError(Kind::Malformed, file.name + ":" + std::to_string(begin.line) + ":" +
                                           std::to_string(begin.column) +
                                           " is not TOML: " + why.substr(0, why.find('\n')));
  }
}

}  // namespace

std::optional<SettingsFile> read_settings_file(const SettingsEnvironment& environment) {
  if (const auto named = environment.find(std::string(settings_file_variable)); named != environment.end())
    return read(named->second, " (environment " + named->first + ")");
  std::error_code error;
  if (!std::filesystem::exists(standard_name, error)) return std::nullopt;
  SettingsFile file = read(standard_name, "");
  file.is_found = true;
  return file;
}

std::vector<detail::GivenSetting> detail::parse_settings_file(const SettingsFile& file) {
  std::vector<GivenSetting> given;
  add_settings(parse(file), "", file.name, given);
  return given;
}

}  // namespace cox
