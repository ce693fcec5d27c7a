#pragma once

#include <coxswain/collectives/store/world_token.hpp>
#include <coxswain/collectives/world/world_leader.hpp>
#include <coxswain/tools/cox/nodes/node_options.hpp>
#include <coxswain/tools/cox/nodes/remote_nodes.hpp>
#include <coxswain/tools/cox/supervisor/caught_signals.hpp>
#include <coxswain/tools/cox/supervisor/child_process.hpp>
#include <coxswain/tools/cox/supervisor/control_socket.hpp>
#include <coxswain/tools/cox/supervisor/exit_request.hpp>
#include <coxswain/tools/cox/supervisor/expelled_processes.hpp>
#include <coxswain/tools/cox/supervisor/keeper.hpp>
#include <coxswain/tools/cox/supervisor/local_processes.hpp>
#include <coxswain/tools/cox/supervisor/restart_causes.hpp>
#include <coxswain/tools/cox/supervisor/restart_policy.hpp>
#include <coxswain/tools/cox/supervisor/world_run.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

namespace cox::tools {

/// How a WorldSupervisor treats its program.
struct WorldSupervisorOptions {
  std::size_t processes = 2;  ///< on this host
  RestartLimits limits;
  RestartCauses causes;
  WorldGrace grace;
  std::chrono::nanoseconds kill_after{std::chrono::seconds(30)};  ///< from a signal that requests exit to SIGKILL
  /// A process that fails for a restart cause is started again alone, while the others run. Then no kept memory is
  /// held.
  bool successors = false;
  /// Bytes of kept memory that are held at most, of all processes on this host.
  std::uint64_t kept_limit = KeeperLimits().bytes;
  NodeOptions nodes{};  ///< of node 0; not together with successors
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
/// The supervisor leads the world (WorldLeader), so that it outlives each of its processes.
///
/// With several nodes this is the agent of node 0. The world has also the processes of the other nodes (RemoteNodes),
/// and each run begins when all nodes are there. The loss of a node is a restart cause. All else is as on one host.
///
/// Keeps the memory of the processes' kept sets from run to run, by their numbers (WorldKeepers). While it holds any, a
/// signal is a restart cause, too, and all processes that the last run has started are ended before the next one
/// begins; the restart after a run that is likely to have made progress waits for nothing and is not counted. There is
/// no standby.
class WorldSupervisor {
 public:
  /// Reports on `err` which process fails, and why the world is restarted or not. `err` must outlive this object.
  /// Throws std::system_error. Precondition: at least one process, at most 4096.
  WorldSupervisor(std::vector<std::string> program, WorldSupervisorOptions options, std::ostream& err);

  /// The request for WorldLeader::describe(): see ControlSocket.
  static constexpr std::string_view world_request = "world";

  /// Runs the world until it is not restarted. Blocks until then. Returns the exit code for this process: 0 if all
  /// processes of the last run ended with code 0, else that of the first one that failed; 126 or 127 if the program
  /// cannot be started, or 128 + the signal that ended the back-off. If another node does
  /// not come in time, ExitCode::WorldGone.
  [[nodiscard]] int run();

 private:
  using Clock = RestartPolicy::Clock;

  [[nodiscard]] int supervise();
  // Blocks until all nodes are there. Returns the exit code if this process is to end instead.
  [[nodiscard]] std::optional<int> wait_for_nodes();
  // Blocks until there is something to do, or the time has elapsed.
  void wait(std::optional<std::chrono::nanoseconds> longest);
  // The next signal that requests the exit, sent to this process or another agent, while no process runs.
  [[nodiscard]] std::optional<int> take_exit_signal();
  [[nodiscard]] bool holds_memory() const noexcept;
  [[nodiscard]] std::uint64_t kept_bytes() const noexcept;
  // Number of processes of the world.
  [[nodiscard]] std::size_t processes() const noexcept;

  // How the first process that failed has ended; code 0: none failed.
  [[nodiscard]] ProgramEnd try_run();
  [[nodiscard]] std::optional<WorldRun::Failure> run_processes();
  void start_processes(WorldRun& world);
  [[nodiscard]] WorldSuccessors successors();
  [[nodiscard]] std::unique_ptr<ChildProcess> start_process(std::size_t process);
  // The value of COX_WORLD_RESTART of the process.
  [[nodiscard]] std::uint64_t restart_of(std::size_t process) const {
    return restarts_ + started_before_ + started_again_[process];
  }
  void note_expelled(WorldRun& world);
  // Readable when there is something to do.
  [[nodiscard]] std::vector<int> descriptors() const;
  void forward(WorldRun& world);
  void pass_on(WorldRun& world, int signal, std::uint16_t node);
  // Stops the processes on this host and this one, as the terminal has requested; returns when all continue.
  void stop(WorldRun& world);
  // `world`: null while none runs.
  void answer_requests(WorldRun* world);
  [[nodiscard]] std::string reload(WorldRun* world);
  [[nodiscard]] std::string status(const WorldRun* world) const;
  // Ends what the last run has left: its other processes, which could still write kept memory, and its connections.
  // Returns whether a run with the memory that is held is likely to make progress.
  [[nodiscard]] bool finish_run();
  // Waits, while no process runs. Returns whether no signal has requested the exit.
  [[nodiscard]] bool continues(std::optional<std::chrono::nanoseconds> longest);
  // The signal that ended the back-off; nullopt when the delay has elapsed.
  [[nodiscard]] std::optional<int> back_off(std::chrono::nanoseconds delay);
  void report_end(const std::string& what_next);

  const WorldSupervisorOptions options_;
  std::ostream& err_;
  RestartPolicy policy_;
  const std::string name_;  // of the world, no other supervisor has it
  CaughtSignals signals_;   // before the folder of local_, which no signal may leave behind
  LocalProcesses local_;
  std::optional<RemoteNodes> nodes_;      // none: one node
  std::optional<ControlSocket> control_;  // none if it cannot be created
  Clock::time_point began_;               // of the run
  ExpelledProcesses expelled_;
  std::unique_ptr<WorldLeader> leader_;        // of the run; none between runs
  std::uint64_t started_before_ = 0;           // successors of earlier runs, so that no restart has a number twice
  std::vector<Clock::time_point> started_at_;  // by process
  std::vector<std::uint64_t> started_again_;   // by process, in this run
  std::uint64_t restarts_ = 0;
  std::optional<WorldRun::Failure> failure_;         // of the last run
  std::optional<std::filesystem::path> last_fault_;  // report of the fault that ended the last run
  std::string end_text_;                             // why the world ends, for the other agents
  std::map<int, std::uint16_t> exit_signals_;        // that were passed on, and the node that has received each first
  ExitRequest exit_;
  bool reload_requested_ = false;
};

}  // namespace cox::tools
