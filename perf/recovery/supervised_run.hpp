#pragma once

#include <coxswain/perf/recovery/journal.hpp>
#include <coxswain/perf/recovery/recovery_options.hpp>

#include <sys/types.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace cox::perf {

/// A process under `cox run` and the times of its moments; 0: not reached.
struct WorkerProcess {
  pid_t id = 0;
  int descriptor = -1;  ///< a pidfd; -1 once it has ended
  std::array<std::chrono::nanoseconds, moments> times{};
  std::chrono::nanoseconds ended{0};  ///< all its threads have ended, and its descriptors are closed
  std::uint32_t state = 0;            ///< as Report
  std::uint64_t lost = 0;             ///< as Report

  [[nodiscard]] std::chrono::nanoseconds at(Moment moment) const noexcept {
    return times[static_cast<std::size_t>(moment)];
  }
  [[nodiscard]] bool reached(Moment moment) const noexcept { return at(moment).count() != 0; }
};

/// `cox run -- perf_recovery --worker ...`, started by this process. On one thread. Its output and that of the workers
/// is in a file. Each wait is limited by --timeout, and throws std::runtime_error with the end of that file.
class SupervisedRun {
 public:
  /// Starts it. Throws std::system_error.
  explicit SupervisedRun(const RecoveryOptions& options);
  SupervisedRun(const SupervisedRun&) = delete;
  SupervisedRun& operator=(const SupervisedRun&) = delete;
  /// Ends it: by SIGTERM, after 5 s by SIGKILL. The workers end with it.
  ~SupervisedRun();

  [[nodiscard]] const Book& book() const noexcept { return journal_.book(); }

  /// Waits for a process other than `before` that lives and has reached the moment. The reference is valid as long as
  /// this object.
  WorkerProcess& wait_for(Moment moment, const WorkerProcess* before);
  void wait_for_end_of(const WorkerProcess& process);
  /// Follows the processes for that time.
  void pause(std::chrono::nanoseconds time);
  /// Starts `cox run --reload`. Returns at once.
  void reload();
  /// Waits for the end of `cox run`. Throws if its exit code is not 0.
  void wait_for_success();

 private:
  using Clock = std::chrono::steady_clock;

  [[nodiscard]] pid_t start(const std::vector<std::string>& words) const;
  void wait(const std::function<bool()>& done, const std::string& what);
  void follow(std::chrono::nanoseconds longest);
  void take_reports();
  [[nodiscard]] WorkerProcess& process_of(pid_t id);
  void reap();
  [[noreturn]] void fail(const std::string& why) const;
  [[nodiscard]] std::string end_of_log() const;

  const RecoveryOptions& options_;
  Journal journal_;
  int log_ = -1;
  pid_t cox_ = -1;
  std::optional<int> status_;  // of waitpid for cox_
  pid_t reload_ = -1;          // -1: none runs
  bool reload_failed_ = false;
  std::vector<std::unique_ptr<WorkerProcess>> processes_;
};

}  // namespace cox::perf
