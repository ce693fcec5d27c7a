#pragma once

#include <coxswain/tools/cox/supervisor/caught_signals.hpp>
#include <coxswain/tools/cox/supervisor/child_process.hpp>
#include <coxswain/tools/cox/supervisor/control_socket.hpp>
#include <coxswain/tools/cox/supervisor/descendants.hpp>
#include <coxswain/tools/cox/supervisor/descriptor_limit.hpp>
#include <coxswain/tools/cox/supervisor/exit_request.hpp>
#include <coxswain/tools/cox/supervisor/keeper.hpp>
#include <coxswain/tools/cox/supervisor/private_folder.hpp>
#include <coxswain/tools/cox/supervisor/restart_causes.hpp>
#include <coxswain/tools/cox/supervisor/restart_policy.hpp>
#include <coxswain/tools/cox/supervisor/standby.hpp>

#include <sys/types.h>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace cox::tools {

/// How a Supervisor treats its program.
struct SupervisorOptions {
  RestartLimits limits;
  RestartCauses causes;
  std::uint64_t kept_limit = KeeperLimits().bytes;                ///< bytes of kept memory that are held at most
  std::chrono::nanoseconds kill_after{std::chrono::seconds(30)};  ///< from a signal that requests exit to SIGKILL
  bool standby = false;  ///< a second process is started while the program runs, and takes over when that ends
};

/// Runs a program, and restarts it while its end is a restart cause and the limits allow another restart:
///
///     runs --(restart cause)--> backs off --(delay has elapsed)--> runs again
///       |                           |
///       | no cause, limit reached,  | signal that requests exit
///       | exit requested            v
///       +-----------------------> done
///
/// Keeps the memory of the program's kept sets from run to run (Keeper). While it holds any, a signal is a restart
/// cause, too, and all processes of a run are ended before the next one begins; the restart after a run that is likely
/// to have made progress waits for nothing and is not counted. With a standby the next run is that process (Standby).
class Supervisor {
 public:
  /// Reports on `err` why the program is restarted or not. `err` must outlive this object. Throws std::system_error.
  Supervisor(std::vector<std::string> program, SupervisorOptions options, std::ostream& err);

  /// The variable that is set to 1 for a process that was started as a standby.
  static constexpr const char* standby_variable = "COX_STANDBY";

  /// Runs the program until it is not restarted. Blocks until then. Returns the exit code for this process: that of the
  /// program's last run, 126 or 127 if the program cannot be started, or 128 + the signal that ended the back-off.
  [[nodiscard]] int run();

  // The requests of ControlSocket::query().
  static constexpr std::string_view status_request = "status";  ///< a text about the program and its kept memory
  static constexpr std::string_view reload_request = "reload";  ///< ends the program by SIGTERM, and starts it again

 private:
  [[nodiscard]] std::optional<ProgramEnd> try_run();
  [[nodiscard]] ProgramEnd run_once();
  // Starts the program as the run of that number, with that socket of the keeper.
  [[nodiscard]] std::unique_ptr<ChildProcess> start(std::uint64_t run, const std::filesystem::path& socket,
                                                    bool as_standby);
  // Readable when there is something to do.
  [[nodiscard]] std::vector<int> descriptors() const;
  [[nodiscard]] ProgramEnd wait_for(ChildProcess& child);
  void forward(ChildProcess& child);
  // Stops the program and this process, as the terminal has requested; returns when both continue.
  void stop(ChildProcess& child);
  // `child`: null while none runs.
  void answer_requests(ChildProcess* child);
  [[nodiscard]] std::string reload(ChildProcess* child);
  // Kills the program if it has not ended in time after a signal or a reload.
  void enforce_end(ChildProcess& child);
  [[nodiscard]] std::optional<std::chrono::steady_clock::time_point> kill_at() const noexcept;
  void end_for_reload(ChildProcess& child);
  // Starts a standby once the run has queued a commit: while a program starts, a second one would only slow it down.
  // Ends the program if that waits for the standby to be ready.
  void tend_standby(ChildProcess& child);
  [[nodiscard]] bool wants_standby() const noexcept;
  // Until enforce_end() or tend_standby() has something to do.
  [[nodiscard]] std::optional<std::chrono::nanoseconds> until_due() const;
  [[nodiscard]] std::string status(const ChildProcess* child) const;
  // Ends what the last run has left: its other processes, which could still write kept memory, and its connection.
  // Returns whether a successor is likely to make progress.
  [[nodiscard]] bool finish_run();
  // The signal that ended the back-off; nullopt when the delay has elapsed.
  [[nodiscard]] std::optional<int> back_off(std::chrono::nanoseconds delay);
  void report_end(const ProgramEnd& end, const std::string& what_next = {});
  [[nodiscard]] std::filesystem::path report(std::uint64_t run) const;

  std::vector<std::string> program_;
  const SupervisorOptions options_;
  std::ostream& err_;
  RestartPolicy policy_;
  CaughtSignals signals_;  // before the folder, which no signal may leave behind
  PrivateFolder folder_;
  DescriptorLimit descriptors_;
  Keeper keeper_;
  const std::vector<pid_t> children_before_ = children_of_this_process();
  std::optional<ControlSocket> control_;         // none if it cannot be created
  std::chrono::steady_clock::time_point began_;  // of the run
  std::uint64_t restarts_ = 0;
  ExitRequest exit_;
  bool is_killed_ = false;                                             // the program, by enforce_end()
  std::optional<std::chrono::steady_clock::time_point> reload_until_;  // the program has been sent SIGTERM
  bool reload_requested_ = false;
  bool reload_when_ready_ = false;  // once the standby waits
  std::optional<Standby> standby_;  // last: it ends before the keeper
};

}  // namespace cox::tools
