#pragma once

#include <coxswain/tools/cox/supervisor/program_end.hpp>

#include <sys/types.h>
#include <optional>
#include <string>

namespace cox::tools {

/// A process of a world, on this host or on another one. One thread.
class WorldProcess {
 public:
  WorldProcess() = default;
  WorldProcess(const WorldProcess&) = delete;
  WorldProcess& operator=(const WorldProcess&) = delete;
  virtual ~WorldProcess() = default;

  /// How the program has ended; nullopt while it runs. Does not block.
  [[nodiscard]] virtual std::optional<ProgramEnd> end() noexcept = 0;
  /// Sends a signal to the process. Does nothing if the process has ended.
  virtual void send(int signal) noexcept = 0;
  /// Its process id on this host; 0 if it runs on another one.
  [[nodiscard]] virtual pid_t id() const noexcept = 0;
  /// Where it runs: "pid 4711", "pid 4711 on node7".
  [[nodiscard]] virtual std::string place() const = 0;
  /// The first failure of a process in the run has been found. Called once, if the process was not found ended before.
  virtual void note_failure() noexcept = 0;
  /// Whether the process had begun to end when note_failure() was called. Precondition: end() has returned a value.
  [[nodiscard]] virtual bool ended_before_failure() const noexcept = 0;
};

}  // namespace cox::tools
