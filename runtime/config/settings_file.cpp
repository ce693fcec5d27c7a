#include <coxswain/runtime/config/settings_file.hpp>

#include <coxswain/runtime/base/byte_count.hpp>
#include <coxswain/runtime/config/setting_value.hpp>

#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <utility>

namespace cox {
namespace {

constexpr const char* standard_name = "coxswain.toml";
constexpr const char* no_file = "/dev/null";
constexpr std::size_t largest_file = std::size_t{1} << 20U;  // bytes

SettingsFile read(const std::string& name, const std::string& whence) {
  const auto refuse = [&](const std::string& why) -> ConfigError {
    return {ConfigError::Kind::Unreadable, "the settings file " + in_quotes(name) + whence + " cannot be read: " + why};
  };
  std::error_code error;
  if (name == no_file) return {name, ""};
  const std::filesystem::file_status status = std::filesystem::status(name, error);
  if (std::filesystem::is_directory(status)) throw refuse("it is a directory");
  // Reading a pipe would block until it has a writer, and some devices never end.
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status))
    throw refuse("it is no regular file");
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
