#pragma once

#include <string>

namespace cox::tools {

/// How a program has ended: with an exit code, or by a signal.
struct ProgramEnd {
  int code = 0;    ///< the exit code, if `signal` is 0
  int signal = 0;  ///< the signal that ended the program; 0: none
  /// The node of the program is gone, so that nothing more is known; the code is ExitCode::WorldGone then.
  bool is_lost = false;

  /// The exit code that a shell reports: the code, or 128 + the signal number.
  [[nodiscard]] int exit_code() const noexcept { return signal != 0 ? 128 + signal : code; }
  /// "ended with code 86", "was ended by signal 9 (Killed)", "is lost with its node".
  [[nodiscard]] std::string to_string() const;

  friend bool operator==(const ProgramEnd&, const ProgramEnd&) = default;
};

}  // namespace cox::tools
