#pragma once

#include <coxswain/tools/cox/supervisor/program_end.hpp>
#include <coxswain/tools/cox/supervisor/world_process.hpp>

#include <sys/resource.h>
#include <sys/types.h>
#include <exception>
#include <map>
#include <optional>
#include <ostream>
#include <string>
#include <system_error>
#include <vector>

namespace cox::tools {

/// Differences of a child's environment from that of this process: the value of a variable, or nullopt to remove it.
using EnvironmentChanges = std::map<std::string, std::optional<std::string>>;

/// A child process that runs a program, in a session and process group of its own. The processes that the program has
/// started belong to the group, except those that have left it. The kernel kills the child, without its group, when the
/// thread that started it ends.
class ChildProcess final : public WorldProcess {
 public:
  /// Starts `arguments.front()`, looked up in PATH. Blocks until the program has started. The child has the signal mask
  /// of the calling thread and no signal handlers; ignored signals stay ignored. `descriptors`: its limit of open
  /// files. Throws std::system_error if the program cannot be started. Precondition: `arguments` is not empty.
  ChildProcess(const std::vector<std::string>& arguments, const EnvironmentChanges& changes,
               const std::optional<rlimit>& descriptors = std::nullopt);
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;
  /// Kills the group if end() has no value, and blocks until the process has ended.
  ~ChildProcess() override;

  /// After send() of SIGTERM, SIGINT, SIGHUP or SIGQUIT, std::nullopt until the whole group has ended, or SIGKILL was
  /// sent to it: a shell ends at once, while the program that it has started may save its state. If one of these
  /// signals has ended the program, but not its group, the same signal may be about to arrive here: it is waited for,
  /// for a moment.
  [[nodiscard]] std::optional<ProgramEnd> end() noexcept override;
  [[nodiscard]] pid_t id() const noexcept override { return id_; }
  /// To the whole group. But SIGTERM and SIGHUP are sent to the program, which may need the processes that it has
  /// started to save its state, and to the rest of the group when the program has ended; SIGUSR1 and SIGUSR2 to the
  /// program alone. Does nothing after end() has returned a value.
  void send(int signal) noexcept override;
  [[nodiscard]] std::string place() const override { return "pid " + std::to_string(id_); }
  void note_failure() noexcept override;
  [[nodiscard]] bool ended_before_failure() const noexcept override { return ended_before_failure_; }

 private:
  [[nodiscard]] bool group_runs() const noexcept;

  pid_t id_ = -1;
  std::optional<ProgramEnd> end_;
  bool awaits_group_ = false;
  int signal_of_rest_ = 0;   // that the group is sent when the program has ended; 0: none
  bool has_waited_ = false;  // for a signal
  bool is_killed_ = false;
  bool is_reported_ = false;  // end() has returned a value
  bool ended_before_failure_ = false;
};

/// Reports on `err` that the program cannot be started. Returns the exit code for this process: 127 if the program was
/// not found, else 126.
[[nodiscard]] int report_not_started(const std::string& program, const std::exception& error, std::ostream& err);

}  // namespace cox::tools
