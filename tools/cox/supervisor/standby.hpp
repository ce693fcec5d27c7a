#pragma once

#include <coxswain/tools/cox/supervisor/child_process.hpp>
#include <coxswain/tools/cox/supervisor/keeper.hpp>
#include <coxswain/tools/cox/supervisor/restart_policy.hpp>

#include <sys/types.h>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <string>

namespace cox::tools {

/// The process that takes over when the program ends (cox run --standby). It is the same program, started while the
/// program still runs, and belongs to the run that the keeper has prepared: so it blocks when it opens a kept set,
/// until it is the program.
///
///     none --start--> starts --(opens a set)--> waits --take()--> the program
///       ^               |                         |
///       +---(delay)-----+--------(ends)-----------+
///
/// One thread.
class Standby {
 public:
  using Clock = std::chrono::steady_clock;
  /// Starts the program with this socket of the keeper. Throws std::system_error.
  using StartProgram = std::function<std::unique_ptr<ChildProcess>(const std::filesystem::path& socket)>;

  /// `keeper` and `err`, for reports, must outlive this object.
  Standby(const RestartLimits& limits, Keeper& keeper, StartProgram start_program, std::ostream& err)
      : keeper_(keeper), start_program_(std::move(start_program)), err_(err), policy_(limits) {}
  Standby(const Standby&) = delete;
  Standby& operator=(const Standby&) = delete;
  /// As end().
  ~Standby() { end(); }

  /// Starts a process if none lives and it is time to; one that has ended is started again after a delay, within the
  /// limits. Returns false if one has ended since the last call.
  bool tend();
  /// Ends the process, and starts another one now. Throws std::system_error; then it is tried again later.
  void start();
  /// Ends the process and those that it has started. Waits for them, at most 1 s.
  void end() noexcept;
  /// The process, which is the program from now on; begins its run. null if none lives: begins a new run.
  [[nodiscard]] std::unique_ptr<ChildProcess> take();

  /// Sends a signal to the process, if one lives.
  void send(int signal) noexcept {
    if (process_ != nullptr) process_->send(signal);
  }
  /// 0: none.
  [[nodiscard]] pid_t id() const noexcept { return process_ == nullptr ? 0 : process_->id(); }
  /// Whether the process waits for kept memory.
  [[nodiscard]] bool waits() const noexcept;
  /// Whether it is the process, or one that it has started and whose parent has ended.
  [[nodiscard]] bool includes(pid_t process) const;
  /// When tend() has something to do at the latest; std::nullopt: not known.
  [[nodiscard]] std::optional<Clock::time_point> due() const noexcept { return due_; }
  /// "process 12, waits for kept memory".
  [[nodiscard]] std::string to_string() const;

 private:
  void start_later(const std::string& why);

  Keeper& keeper_;
  const StartProgram start_program_;
  std::ostream& err_;
  RestartPolicy policy_;
  std::unique_ptr<ChildProcess> process_;  // null: none
  std::filesystem::path socket_;           // of the process
  Clock::time_point began_;
  std::optional<Clock::time_point> due_ = Clock::time_point();  // std::nullopt: none is started
};

}  // namespace cox::tools
