#pragma once

#include <array>
#include <csignal>
#include <optional>

namespace cox::tools {

/// A signal that came.
struct CaughtSignal {
  int number = 0;
  bool from_kernel = false;  ///< not from a process: sent by a terminal
};

/// While it lives, signals of a supervisor wait to be taken instead of ending the process: those that ask for its end,
/// those that it passes on, and SIGCHLD. What the process ignores (nohup) it goes on ignoring. One at a time.
class CaughtSignals {
 public:
  /// Throws std::system_error.
  CaughtSignals();
  CaughtSignals(const CaughtSignals&) = delete;
  CaughtSignals& operator=(const CaughtSignals&) = delete;
  ~CaughtSignals();

  /// To poll: readable when there is something to take.
  [[nodiscard]] int descriptor() const noexcept { return read_; }
  /// Does not block.
  [[nodiscard]] std::optional<CaughtSignal> take() noexcept;

  /// SIGINT, SIGTERM, SIGHUP, SIGQUIT.
  [[nodiscard]] static bool requests_exit(int signal) noexcept;
  /// Those, SIGUSR1 and SIGUSR2.
  [[nodiscard]] static bool is_passed_on(int signal) noexcept;

 private:
  // The last two are caught to be noticed: a child has ended; nobody reads what is written.
  static constexpr std::array signals{SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD, SIGPIPE};
  static constexpr std::size_t exit_signals = 4;
  static constexpr std::size_t passed_on = 6;

  int read_ = -1;
  int write_ = -1;
  std::array<struct sigaction, signals.size()> before_{};
};

}  // namespace cox::tools
