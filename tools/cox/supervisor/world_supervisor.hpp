#pragma once

#include <coxswain/tools/cox/supervisor/caught_signals.hpp>
#include <coxswain/tools/cox/supervisor/child_process.hpp>
#include <coxswain/tools/cox/supervisor/private_folder.hpp>
#include <coxswain/tools/cox/supervisor/restart_causes.hpp>
#include <coxswain/tools/cox/supervisor/restart_policy.hpp>
#include <coxswain/tools/cox/supervisor/world_run.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

namespace cox::tools {

/// How a WorldSupervisor treats its program.
struct WorldSupervisorOptions {
  std::size_t processes = 2;
  RestartLimits limits;
  RestartCauses causes;
  WorldGrace grace;
};

/// Runs several processes of a program on this host as one world, and restarts them all while the first failure of a
/// run is a restart cause and the limits allow another restart:
///
///     run of all processes (WorldRun) --(restart cause)--> backs off --(delay has elapsed)--> run of all processes
///       |                                                    |
///       | no failure or no cause, limit reached,             | signal that requests exit
///       | exit requested                                     v
///       +------------------------------------------------> done
///
/// The processes find each other in a folder of the supervisor. It holds no kept memory, and has no standby and no
/// control socket.
class WorldSupervisor {
 public:
  /// Reports on `err` which process fails, and why the world is restarted or not. `err` must outlive this object.
  /// Throws std::system_error. Precondition: at least one process, at most 4096.
  WorldSupervisor(std::vector<std::string> program, WorldSupervisorOptions options, std::ostream& err);

  /// Runs the world until it is not restarted. Blocks until then. Returns the exit code for this process: 0 if all
  /// processes of the last run ended with code 0, else that of the first one that failed; 126 or 127 if the program
  /// cannot be started, or 128 + the signal that ended the back-off.
  [[nodiscard]] int run();

 private:
  using Clock = RestartPolicy::Clock;

  [[nodiscard]] std::optional<WorldRun::Failure> run_once();
  // What all processes of the next run have in their environment.
  [[nodiscard]] EnvironmentChanges environment() const;
  void forward(WorldRun& world, CaughtSignals::From from);
  // The signal that ended the back-off; nullopt when the delay has elapsed.
  [[nodiscard]] std::optional<int> back_off(std::chrono::nanoseconds delay);
  void report_failure(const WorldRun::Failure& failure, const std::string& what_next);
  // For the store and the fault reports of a run.
  [[nodiscard]] std::filesystem::path folder_of(std::uint64_t run) const;

  const std::vector<std::string> program_;
  const WorldSupervisorOptions options_;
  std::ostream& err_;
  RestartPolicy policy_;
  PrivateFolder folder_;
  const std::string name_;  // of the world, no other supervisor has it
  CaughtSignals signals_;
  std::uint64_t restarts_ = 0;
  std::optional<std::filesystem::path> last_fault_;  // report of the fault that ended the last run
  bool exit_requested_ = false;
};

}  // namespace cox::tools
