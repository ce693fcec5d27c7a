#include <coxswain/runtime/settings_file.hpp>

#include <coxswain/runtime/setting_value.hpp>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

namespace cox {
namespace {

constexpr const char* standard_name = "coxswain.toml";

SettingsFile read(const std::string& name, const std::string& whence) {
  const auto refuse = [&](const std::string& why) -> ConfigError {
    return {ConfigError::Kind::Unreadable, "the settings file " + in_quotes(name) + whence + " cannot be read: " + why};
  };
  std::error_code error;
  if (std::filesystem::is_directory(name, error)) throw refuse("it is a directory");
  errno = 0;
  const std::ifstream file(name, std::ios::binary);
  if (!file) throw refuse(std::generic_category().message(errno));
  std::ostringstream text;
  text << file.rdbuf();
  return {name, text.str()};
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

}  // namespace cox
