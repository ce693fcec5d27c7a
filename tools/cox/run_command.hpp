#pragma once

#include <coxswain/tools/cox/exit_code.hpp>
#include <coxswain/tools/cox/nodes/node_options.hpp>

#include <ostream>
#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
}

namespace cox::tools {

/// `cox run -- program arguments...`: runs a program, or several processes of it as one world, also on several nodes
/// with a `cox run` on each, and restarts it after a GPU fault.
class RunCommand {
 public:
  /// Registers the subcommand with `app`. `app` must outlive this object.
  explicit RunCommand(CLI::App& app);
  RunCommand(const RunCommand&) = delete;
  RunCommand& operator=(const RunCommand&) = delete;

  [[nodiscard]] bool chosen() const;
  /// Blocks until the program has ended and is not restarted. Returns the exit code of the program: any value, not only
  /// the enumerators of ExitCode. With --status or --reload sends that request to a running supervisor instead, and
  /// prints the answer. Throws ArgumentError.
  [[nodiscard]] ExitCode run(std::vector<std::string> program, std::ostream& out, std::ostream& err) const;

 private:
  // Throws ArgumentError if the request for a running supervisor is given together with anything else.
  void require_alone(const std::string& request, const std::vector<std::string>& program) const;

  CLI::App& command_;
  std::string restarts_ = "10";
  std::string within_ = "1h";
  std::string backoff_ = "1s";
  std::string backoff_max_ = "1min";
  std::string on_;
  std::string processes_ = "1";
  std::string grace_ = "10s";
  std::string kill_after_ = "30s";
  std::string kept_limit_ = "1048576GiB";
  NodeArguments node_arguments_;
  bool standby_ = false;
  bool successors_ = false;
  std::string status_;  // process ids; "0": the only one
  std::string reload_;
};

}  // namespace cox::tools
