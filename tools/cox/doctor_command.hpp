#pragma once

#include <coxswain/tools/cox/exit_code.hpp>

#include <ostream>
#include <string>

namespace CLI {
class App;
}

namespace cox::tools {

/// `cox doctor`: finds problems of the machine and says how to fix them.
class DoctorCommand {
 public:
  /// Registers the subcommand with `app`. `app` must outlive this object.
  explicit DoctorCommand(CLI::App& app);
  DoctorCommand(const DoctorCommand&) = delete;
  DoctorCommand& operator=(const DoctorCommand&) = delete;

  [[nodiscard]] bool chosen() const;
  /// Returns Violation if a finding is Wrong or the output file could not be written. Throws ArgumentError,
  /// ConfigError.
  [[nodiscard]] ExitCode run(std::ostream& out, std::ostream& err) const;

 private:
  CLI::App& command_;
  std::string json_;
};

}  // namespace cox::tools
