#pragma once

#include <array>
#include <csignal>
#include <cstddef>
#include <optional>

namespace cox::tools {

/// While this object exists, signals of the supervisor are queued for take() instead of ending the process: signals
/// that request its exit, signals that it forwards, SIGTSTP, SIGCHLD and SIGPIPE. Signals that the process ignores
/// (nohup) stay ignored, except SIGCHLD. At most one object at a time.
class CaughtSignals {
 public:
  /// Throws std::system_error.
  CaughtSignals();
  CaughtSignals(const CaughtSignals&) = delete;
  CaughtSignals& operator=(const CaughtSignals&) = delete;
  ~CaughtSignals();

  /// A descriptor for poll(). Readable when take() has a signal to return.
  [[nodiscard]] int descriptor() const noexcept { return read_; }
  /// The oldest queued signal; nullopt if there is none. Does not block.
  [[nodiscard]] std::optional<int> take() noexcept;
  /// Stops this process as SIGTSTP does by default, and returns when it continues; at once if its process group is
  /// orphaned, since no shell could continue it.
  void stop() noexcept;

  /// True for SIGINT, SIGTERM, SIGHUP and SIGQUIT.
  [[nodiscard]] static bool requests_exit(int signal) noexcept;
  /// True for SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2.
  [[nodiscard]] static bool is_passed_on(int signal) noexcept;

 private:
  // The last three are not forwarded. SIGTSTP stops the program with this process. SIGCHLD makes descriptor() readable
  // when a child has ended. SIGPIPE, for a write to a pipe without a reader, is caught so that it does not end the
  // process.
  static constexpr std::array signals{SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP, SIGCHLD, SIGPIPE};
  static constexpr std::size_t exit_signals = 4;
  static constexpr std::size_t passed_on = 6;

  int read_ = -1;
  int write_ = -1;
  std::array<struct sigaction, signals.size()> before_{};
};

}  // namespace cox::tools
