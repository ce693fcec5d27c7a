#pragma once

#include <coxswain/tools/cox/stress/progress.hpp>

#include <ostream>

namespace cox::tools {

/// Shows progress on `err`: on a terminal, one line that each show() overwrites; otherwise, a line every ten seconds.
class ProgressLine {
 public:
  ProgressLine(std::ostream& err, bool terminal) noexcept : err_(err), terminal_(terminal) {}
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;
  /// Ends the line on the terminal.
  ~ProgressLine() {
    if (open_) err_ << "\n" << std::flush;
  }

  void show(const stress::Progress& progress) {
    constexpr double between = 10;  // seconds
    if (terminal_) {
      err_ << "\r" << to_string(progress) << "\x1b[K" << std::flush;  // erases the rest of the previous text
      open_ = true;
    } else if (progress.seconds >= last_ + between) {
      err_ << to_string(progress) << std::endl;
      last_ = progress.seconds;
    }
  }

 private:
  std::ostream& err_;
  bool terminal_;
  bool open_ = false;
  double last_ = 0;
};

}  // namespace cox::tools
