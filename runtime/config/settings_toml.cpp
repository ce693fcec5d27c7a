#include <coxswain/runtime/config/settings_toml.hpp>

#include <coxswain/runtime/config/config_error.hpp>
#include <coxswain/runtime/config/edit_distance.hpp>

#include <toml++/toml.h>

#include <algorithm>
#include <cstdint>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

namespace cox::detail {
namespace {

using Kind = ConfigError::Kind;

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
  const auto distance = [&](const Setting& setting) { return edit_distance(name, section_of(setting)); };
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

class Reader {
 public:
  explicit Reader(const std::string& file) : file_(file) {}

  void read(const toml::table& table, const std::string& section) {
    for (const auto& [key, node] : table) {
      const std::string name = section + std::string(key.str());
      const auto settings = known_settings();
      if (const auto found = std::ranges::find(settings, name, &Setting::key); found != settings.end()) {
        const SettingSource source = at(node.source());
        given_.push_back({&*found, value_of(*found, node, source), source});
      } else if (is_section(name)) {
        if (!node.is_table())
          throw ConfigError(Kind::Malformed, name + " is " + shown(node) + " (" + to_string(at(node.source())) +
                                                 "): expected a table, [" + name + "]");
        read(*node.as_table(), name + ".");
      } else {
        throw ConfigError(Kind::UnknownKey,
                          name + " is " + shown(node) + " (" + to_string(at(key.source())) +
                              "): there is no such setting; the nearest is " +
                              std::string(node.is_table() ? nearest_section(name) : nearest_key(name)));
      }
    }
  }
  [[nodiscard]] std::vector<GivenSetting> take() && { return std::move(given_); }

 private:
  [[nodiscard]] SettingSource at(const toml::source_region& region) const {
    return {.kind = SettingSource::Kind::File, .name = file_, .line = region.begin.line, .column = region.begin.column};
  }
  static bool is_section(std::string_view name) {
    return std::ranges::any_of(known_settings(), [&](const Setting& setting) { return section_of(setting) == name; });
  }

  const std::string& file_;
  std::vector<GivenSetting> given_;
};

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

std::vector<GivenSetting> parse_settings_file(const SettingsFile& file) {
  Reader reader(file.name);
  reader.read(parse(file), "");
  return std::move(reader).take();
}

}  // namespace cox::detail
