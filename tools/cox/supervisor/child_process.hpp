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

/// A child process that runs a program. The kernel kills it when the thread that started it ends.
class ChildProcess final : public WorldProcess {
 public:
  /// Starts `arguments.front()`, looked up in PATH. Blocks until the program has started. The child has the signal mask
  /// of the calling thread and no signal handlers; ignored signals stay ignored. `descriptors`: its limit of open
  /// files. Throws std::system_error if the program cannot be started. Precondition: `arguments` is not empty.
  ChildProcess(const std::vector<std::string>& arguments, const EnvironmentChanges& changes,
               const std::optional<rlimit>& descriptors = std::nullopt);
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;
  /// Kills the process if it still runs, and blocks until it has ended.
  ~ChildProcess() override;

  [[nodiscard]] std::optional<ProgramEnd> end() noexcept override;
  [[nodiscard]] pid_t id() const noexcept override { return id_; }
  void send(int signal) noexcept override;
  [[nodiscard]] std::string place() const override { return "pid " + std::to_string(id_); }
  void note_failure() noexcept override;
  [[nodiscard]] bool ended_before_failure() const noexcept override { return ended_before_failure_; }

 private:
  pid_t id_ = -1;
  std::optional<ProgramEnd> end_;
  bool ended_before_failure_ = false;
};

/// Reports on `err` that the program cannot be started. Returns the exit code for this process: 127 if the program was
/// not found, else 126.
[[nodiscard]] int report_not_started(const std::string& program, const std::exception& error, std::ostream& err);

}  // namespace cox::tools
