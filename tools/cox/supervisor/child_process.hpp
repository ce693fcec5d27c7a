#pragma once

#include <coxswain/tools/cox/supervisor/program_end.hpp>

#include <sys/types.h>
#include <map>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

namespace cox::tools {

/// What a child's environment has beside that of this process; nothing: that variable is not there.
using EnvironmentChanges = std::map<std::string, std::optional<std::string>>;

/// A program that was started and is waited for. It does not outlive the thread that started it.
class ChildProcess {
 public:
  /// Runs `arguments.front()`, looked up in PATH. It has the signal mask of this thread, and handles signals as a new
  /// program does. Throws std::system_error if it cannot be run. Precondition: `arguments` is not empty.
  ChildProcess(const std::vector<std::string>& arguments, const EnvironmentChanges& changes);
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;
  /// Kills it if it still runs.
  ~ChildProcess();

  /// Nothing while it runs. Does not block.
  [[nodiscard]] std::optional<ProgramEnd> end() noexcept;
  /// Does nothing if it has ended.
  void send(int signal) noexcept;

 private:
  pid_t id_ = -1;
  std::optional<ProgramEnd> end_;
};

}  // namespace cox::tools
