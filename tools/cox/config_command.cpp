#include <coxswain/tools/cox/config_command.hpp>

#include <coxswain/runtime/config/process_settings.hpp>
#include <coxswain/tools/cox/output_file.hpp>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <iomanip>
#include <string_view>
#include <variant>

namespace cox::tools {
namespace {

std::string text_of(const cox::Setting& setting, const Settings& settings) {
  const std::string text = to_string(setting, settings.value(setting));
  return text.empty() ? "\"\"" : text;
}

void write_table(const Settings& settings, std::ostream& out) {
  std::size_t key_width = 0;
  std::size_t value_width = 0;
  for (const cox::Setting& setting : known_settings()) {
    key_width = std::max(key_width, setting.key.size());
    value_width = std::max(value_width, text_of(setting, settings).size());
  }
  const auto write = [&](std::string_view key, std::string_view value, std::string_view source) {
    out << std::left << std::setw(static_cast<int>(key_width) + 2) << key
        << std::setw(static_cast<int>(value_width) + 2) << value << source << "\n";
  };
  write("key", "value", "source");
  for (const cox::Setting& setting : known_settings())
    write(setting.key, text_of(setting, settings), to_string(settings.source(setting)));
  out << "settings file: " << settings.file().value_or("none") << "\n";
}

// Numbers and booleans as JSON values, all other settings as text.
nlohmann::ordered_json json_of(const cox::Setting& setting, const SettingValue& value) {
  if (const auto* const flag = std::get_if<bool>(&value)) return *flag;
  if (const auto* const number = std::get_if<std::uint64_t>(&value)) return *number;
  return to_string(setting, value);
}

nlohmann::ordered_json json_of(const SettingSource& source) {
  static constexpr std::array kinds{"default", "file", "environment", "code"};
  static_assert(kinds.size() == static_cast<std::size_t>(SettingSource::Kind::Code) + 1);
  nlohmann::ordered_json json;
  json["kind"] = kinds[static_cast<std::size_t>(source.kind)];
  if (!source.name.empty()) json["name"] = source.name;
  if (source.line > 0) json["line"] = source.line;
  if (source.column > 0) json["column"] = source.column;
  return json;
}

std::string json(const Settings& settings) {
  auto rows = nlohmann::ordered_json::array();
  for (const cox::Setting& setting : known_settings())
    rows.push_back({{"key", std::string(setting.key)},
                    {"value", json_of(setting, settings.value(setting))},
                    {"source", json_of(settings.source(setting))},
                    {"environment", std::string(setting.environment)},
                    {"expected", expectation(setting)},
                    {"documentation", std::string(setting.documentation)}});
  nlohmann::ordered_json all;
  all["file"] = settings.file() ? nlohmann::ordered_json(*settings.file()) : nlohmann::ordered_json();
  all["settings"] = std::move(rows);
  return all.dump(2) + "\n";
}

}  // namespace

ConfigCommand::ConfigCommand(CLI::App& app)
    : command_(*app.add_subcommand("config", "Show the value of every setting, and its source")) {
  command_.add_option("--json", json_, "Write the settings to this file; -: to standard output, instead of the table");
}

bool ConfigCommand::chosen() const { return command_.parsed(); }

ExitCode ConfigCommand::run(std::ostream& out, std::ostream& err) const {
  const Settings settings = cox::settings();
  if (json_ == standard_output) {
    out << json(settings);
    return ExitCode::Ok;
  }
  if (!json_.empty()) require_writable("--json", json_);
  const bool delivered =
      json_.empty() || is_written(write_file(json_, json(settings)), "cox config", "--json", json_, err);
  write_table(settings, out);
  return delivered ? ExitCode::Ok : ExitCode::Violation;
}

}  // namespace cox::tools
