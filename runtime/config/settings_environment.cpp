#include <coxswain/runtime/config/settings_environment.hpp>

#include <unistd.h>

namespace cox {

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

}  // namespace cox
