#pragma once

#include <coxswain/tools/cox/exit_code.hpp>

#include <ostream>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace cox::tools {

/// `cox trace`: joins the traces of the processes of a world into one.
class TraceCommand {
 public:
  /// Registers the subcommand with `app`. `app` must outlive this object.
  explicit TraceCommand(CLI::App& app);
  TraceCommand(const TraceCommand&) = delete;
  TraceCommand& operator=(const TraceCommand&) = delete;

  [[nodiscard]] bool chosen() const;
  /// Returns Violation if the output file could not be written. Throws ArgumentError for files that are no traces.
  [[nodiscard]] ExitCode run(std::ostream& out, std::ostream& err) const;

 private:
  CLI::App& command_;
  std::vector<std::string> files_;
  std::string output_;
};

}  // namespace cox::tools
