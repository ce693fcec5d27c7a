#pragma once

#include <coxswain/tools/cox/supervisor/program_end.hpp>
#include <coxswain/tools/cox/supervisor/world_process.hpp>

#include <sys/types.h>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

namespace cox::tools {

/// How long the other processes of a world may continue after one has failed.
struct WorldGrace {
  std::chrono::nanoseconds before_terminate{std::chrono::seconds(10)};  ///< from the failure to SIGTERM
  std::chrono::nanoseconds before_kill{std::chrono::seconds(5)};        ///< from SIGTERM to SIGKILL
};

/// How processes of a world are started again alone.
struct WorldSuccessors {
  /// Whether a process that has ended so gets a successor, and after how long. Called once for each failure.
  std::function<std::optional<std::chrono::nanoseconds>(std::size_t process, const ProgramEnd& end)> delay;
  /// Starts the successor. Throws std::system_error.
  std::function<std::unique_ptr<WorldProcess>(std::size_t process)> start;
};

/// The processes of a world with numbers from `first` on.
struct ProcessRange {
  std::size_t first = 0;
  std::size_t count = 0;

  [[nodiscard]] bool contains(std::size_t process) const noexcept {
    return process >= first && process - first < count;
  }
};

/// The processes of one run of a world (cox run --processes). The end of a process with an exit code other than 0, or
/// by a signal, is a failure. The first one limits the time of the others:
///
///     runs --(failure)--> in grace --(before_terminate)--> SIGTERM sent --(before_kill)--> SIGKILL sent
///
/// When the user has requested the end, the processes have until the time of expect_end() instead.
///
/// With WorldSuccessors a process that has failed is started again instead, while the others run. One that the leader
/// of the world has expelled, and that does not end, is killed.
///
/// The destructor kills the processes that still run. One thread.
class WorldRun {
 public:
  using Clock = std::chrono::steady_clock;

  /// A process that failed.
  struct Failure {
    std::size_t process = 0;  ///< its number
    ProgramEnd end;
    std::filesystem::path report;  ///< of its GPU fault; need not exist
  };

  /// `program`: its name in reports on `err`, which must outlive this object.
  WorldRun(std::string program, const WorldGrace& grace, std::ostream& err, WorldSuccessors successors = {})
      : program_(std::move(program)), grace_(grace), err_(err), successors_(std::move(successors)) {}

  /// Adds the process of the next number. `report`: the file for the report of its GPU fault.
  void add(std::unique_ptr<WorldProcess> process, std::filesystem::path report);
  /// Finds the processes that have ended, reports each failure, starts successors, and sends SIGTERM and SIGKILL at
  /// their times. Returns whether any process still runs, or will be started. Does not block. Throws std::system_error
  /// if a successor cannot be started.
  [[nodiscard]] bool tend();
  /// When tend() is to be called at the latest; std::nullopt: when a process has ended.
  [[nodiscard]] std::optional<Clock::time_point> due() const noexcept;
  /// The leader of the world has expelled the process. If it still runs after WorldGrace::before_terminate, as a
  /// stopped process does, it is killed, so that its successor starts. Without WorldSuccessors this does nothing.
  void note_expelled(std::size_t process);
  /// Sends a signal to all processes that run, but not to those of `except`.
  void send(int signal, ProcessRange except = {}) noexcept;
  /// The ids of the processes on this host, by number, also of those that have ended.
  [[nodiscard]] std::vector<pid_t> ids() const;
  /// The user has requested the end or a reload: failures are not reported from now on, and do not limit the time of
  /// the other processes. Those that still run at `kill_at` are sent SIGKILL. `lateness`: what they have done, in
  /// reports ("has not ended within 30s of the signal"). The last call counts.
  void expect_end(Clock::time_point kill_at, std::string lateness);
  /// The first failure; std::nullopt: none. The failure of a process can cause that of others, which may be found
  /// before: the kernel closes the connections of a process before it reports its end. So of processes that end at the
  /// same time, one that was ended by a signal other than SIGABRT counts as the first, and those with
  /// ExitCode::WorldGone as the last. A process that is lost with its node counts as one that a signal has ended. A GPU
  /// fault always counts as the first failure: other processes are notified of it while its process still runs.
  [[nodiscard]] const std::optional<Failure>& failure() const noexcept { return failure_; }

 private:
  enum class State : std::uint8_t { Runs, InGrace, Terminated, Killed };

  struct Member {
    std::unique_ptr<WorldProcess> process;
    std::filesystem::path report;
    std::optional<ProgramEnd> end;  // std::nullopt: it runs
    bool ended_with_first = false;  // at the same time as the first process that failed
    std::optional<Clock::time_point> starts_again = {};
    std::optional<Clock::time_point> kill_at = {};  // it is expelled
  };

  [[nodiscard]] bool gets_successor(std::size_t process);
  [[nodiscard]] bool start_successors();
  void start_successor(std::size_t process);
  void begin_grace();
  void note_failure(std::size_t process);
  void kill_expelled();
  void force_end();
  // Reports each process that still runs, and sends it the signal.
  void force_end(int signal, const std::string& lateness);
  [[nodiscard]] bool runs() const noexcept;
  // "process 1 (pid 4711) of 'train'".
  [[nodiscard]] std::string name_of(std::size_t process) const;

  const std::string program_;
  const WorldGrace grace_;
  std::ostream& err_;
  const WorldSuccessors successors_;
  std::vector<Member> members_;  // by number
  State state_ = State::Runs;
  std::optional<Clock::time_point> due_;
  std::optional<Clock::time_point> kill_at_;
  std::string lateness_;
  std::optional<Failure> failure_;
};

}  // namespace cox::tools
