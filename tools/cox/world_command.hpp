#pragma once

#include <coxswain/tools/cox/exit_code.hpp>

#include <ostream>
#include <string>

namespace CLI {
class App;
}

namespace cox::tools {

/// `cox world`: shows the processes of a world that `cox run` leads, and what its operations wait for.
class WorldCommand {
 public:
  /// Registers the subcommand with `app`. `app` must outlive this object.
  explicit WorldCommand(CLI::App& app);
  WorldCommand(const WorldCommand&) = delete;
  WorldCommand& operator=(const WorldCommand&) = delete;

  [[nodiscard]] bool chosen() const;
  /// See query_supervisor().
  [[nodiscard]] ExitCode run(std::ostream& out, std::ostream& err) const;

 private:
  CLI::App& command_;
  std::string id_ = "0";  // of a process; 0: the only supervisor
};

}  // namespace cox::tools
