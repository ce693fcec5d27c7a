#pragma once

#include <coxswain/tools/cox/exit_code.hpp>

#include <ostream>
#include <string>

namespace CLI {
class App;
}

namespace cox::tools {

/// `cox config`: shows the settings in force and the source of each.
class ConfigCommand {
 public:
  /// Registers the subcommand with `app`. `app` must outlive this object.
  explicit ConfigCommand(CLI::App& app);
  ConfigCommand(const ConfigCommand&) = delete;
  ConfigCommand& operator=(const ConfigCommand&) = delete;

  [[nodiscard]] bool chosen() const;
  /// Throws ArgumentError, ConfigError.
  [[nodiscard]] ExitCode run(std::ostream& out, std::ostream& err) const;

 private:
  CLI::App& command_;
  std::string json_;
};

}  // namespace cox::tools
