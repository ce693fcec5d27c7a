#pragma once

#include <coxswain/tools/cox/exit_code.hpp>

#include <ostream>
#include <string>

namespace CLI {
class App;
}

namespace cox::tools {

/// `cox doctor`: what is wrong with the machine, and how to mend it.
class DoctorCommand {
 public:
  /// Adds itself to `app`, which outlives it.
  explicit DoctorCommand(CLI::App& app);
  DoctorCommand(const DoctorCommand&) = delete;
  DoctorCommand& operator=(const DoctorCommand&) = delete;

  [[nodiscard]] bool chosen() const;
  /// Returns Violation if something is wrong. Throws ArgumentError, ConfigError.
  [[nodiscard]] ExitCode run(std::ostream& out, std::ostream& err) const;

 private:
  CLI::App& command_;
  std::string json_;
};

}  // namespace cox::tools
