#pragma once

#include <string>

namespace cox::tools {

/// How a program has ended: by itself, or by a signal.
struct ProgramEnd {
  int code = 0;    ///< what it ended with, if `signal` is 0
  int signal = 0;  ///< that ended it; 0: none did

  /// What a shell makes of it: the code, or 128 + the signal.
  [[nodiscard]] int exit_code() const noexcept { return signal != 0 ? 128 + signal : code; }
  /// "ended with code 86", "was ended by signal 9 (Killed)".
  [[nodiscard]] std::string to_string() const;

  friend bool operator==(const ProgramEnd&, const ProgramEnd&) = default;
};

}  // namespace cox::tools
