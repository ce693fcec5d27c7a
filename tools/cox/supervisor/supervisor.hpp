#pragma once

#include <coxswain/tools/cox/supervisor/caught_signals.hpp>
#include <coxswain/tools/cox/supervisor/child_process.hpp>
#include <coxswain/tools/cox/supervisor/private_folder.hpp>
#include <coxswain/tools/cox/supervisor/restart_causes.hpp>
#include <coxswain/tools/cox/supervisor/restart_policy.hpp>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

namespace cox::tools {

/// Runs a program, and runs it again while it ends in a way that calls for it and the limits allow:
///
///     runs --(a cause)--> backs off --(time is up)--> runs again
///       |                     |
///       | no cause, limit,    | a signal that asks for the end
///       | was asked to end    v
///       +-----------------> done
class Supervisor {
 public:
  /// Says on `err`, which outlives it, why the program is started again, or is not. Throws std::system_error.
  Supervisor(std::vector<std::string> program, const RestartLimits& limits, RestartCauses causes, std::ostream& err);

  /// Blocks for all of it. Returns the exit code for this process: the program's last, 126 or 127 if it cannot be run,
  /// 128 + the signal that ended the back-off.
  [[nodiscard]] int run();

 private:
  // A terminal sends SIGINT and SIGQUIT to the program, too: passed on they would arrive twice. A hangup it sends to
  // the leader of the session alone.
  enum class From : std::uint8_t { Anybody, Processes };

  [[nodiscard]] ProgramEnd run_once();
  [[nodiscard]] ProgramEnd wait_for(ChildProcess& child);
  void forward(ChildProcess& child, From from);
  // The signal that ended it; nothing when the time is up.
  [[nodiscard]] std::optional<int> back_off(std::chrono::nanoseconds delay);
  void report_end(const ProgramEnd& end, const std::string& what_next);
  [[nodiscard]] std::filesystem::path report(std::uint64_t run) const;

  std::vector<std::string> program_;
  RestartLimits limits_;
  RestartCauses causes_;
  std::ostream& err_;
  RestartPolicy policy_;
  PrivateFolder folder_;
  CaughtSignals signals_;
  std::uint64_t restarts_ = 0;
  bool exit_requested_ = false;
};

}  // namespace cox::tools
