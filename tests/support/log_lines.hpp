#pragma once

#include <coxswain/runtime/error/log.hpp>

#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace cox::test {

/// What a subsystem logs at a level while this lives; it goes nowhere else.
class LogLines {
 public:
  explicit LogLines(LogSubsystem of = LogSubsystem::Runtime, LogLevel at = LogLevel::Info) {
    LogOptions options;
    options.level = LogLevel::Info;
    options.to_stderr = false;
    options.callback = [this, of, at](LogSubsystem subsystem, LogLevel level, std::string_view text) {
      const std::lock_guard lock(mutex_);
      if (subsystem == of && level == at) lines_.emplace_back(text);
    };
    log::start(options);
  }
  LogLines(const LogLines&) = delete;
  LogLines& operator=(const LogLines&) = delete;
  ~LogLines() { log::stop(); }

  /// So far.
  std::vector<std::string> get() {
    log::flush();
    const std::lock_guard lock(mutex_);
    return lines_;
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> lines_;
};

}  // namespace cox::test
