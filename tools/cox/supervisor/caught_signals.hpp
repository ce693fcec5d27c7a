#pragma once

#include <array>
#include <csignal>
#include <cstdint>
#include <optional>

namespace cox::tools {

/// A signal that arrived.
struct CaughtSignal {
  int number = 0;
  bool from_kernel = false;  ///< sent by the kernel (such as for a terminal), not by a process
};

/// While this object exists, signals of the supervisor are queued for take() instead of ending the process: signals
/// that request its exit, signals that it forwards, SIGCHLD and SIGPIPE. Signals that the process ignores (nohup) stay
/// ignored, except SIGCHLD. At most one object at a time.
class CaughtSignals {
 public:
  /// The sender of the signals to forward. A terminal sends SIGINT and SIGQUIT to the program as well, so that a
  /// forwarded one would arrive twice. A terminal sends SIGHUP only to the session leader, so SIGHUP is always
  /// forwarded.
  enum class From : std::uint8_t { Anybody, Processes };

  /// Throws std::system_error.
  CaughtSignals();
  CaughtSignals(const CaughtSignals&) = delete;
  CaughtSignals& operator=(const CaughtSignals&) = delete;
  ~CaughtSignals();

  /// A descriptor for poll(). Readable when take() has a signal to return.
  [[nodiscard]] int descriptor() const noexcept { return read_; }
  /// The oldest queued signal; nullopt if there is none. Does not block.
  [[nodiscard]] std::optional<CaughtSignal> take() noexcept;

  /// True for SIGINT, SIGTERM, SIGHUP and SIGQUIT.
  [[nodiscard]] static bool requests_exit(int signal) noexcept;
  /// True for SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 if that sender's signals are forwarded.
  [[nodiscard]] static bool is_passed_on(const CaughtSignal& signal, From from) noexcept;

 private:
  // The last two are not forwarded. SIGCHLD makes descriptor() readable when a child has ended. SIGPIPE, for a write to
  // a pipe without a reader, is caught so that it does not end the process.
  static constexpr std::array signals{SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD, SIGPIPE};
  static constexpr std::size_t exit_signals = 4;
  static constexpr std::size_t passed_on = 6;

  int read_ = -1;
  int write_ = -1;
  std::array<struct sigaction, signals.size()> before_{};
};

}  // namespace cox::tools
