#include <coxswain/tests/support/catch.hpp>

#include <coxswain/device_handle/error.hpp>
#include <coxswain/device_handle/task_error.hpp>
#include <coxswain/runtime/log.hpp>

#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

using cox::LogLevel;
using cox::LogSubsystem;

namespace {

struct Captured {
  std::mutex mutex;
  std::vector<std::string> lines;

  cox::LogOptions options(LogLevel level) {
    cox::LogOptions options;
    options.level = level;
    options.to_stderr = false;
    options.callback = [this](LogSubsystem subsystem, LogLevel, std::string_view text) {
      const std::lock_guard lock(mutex);
      lines.push_back(std::string(cox::to_string(subsystem)) + ": " + std::string(text));
    };
    return options;
  }
  std::vector<std::string> get() {
    const std::lock_guard lock(mutex);
    return lines;
  }
};

}  // namespace

TEST_CASE("A log that is off does not even form its messages") {
  cox::log::stop();
  bool formed = false;
  cox::log::write(LogSubsystem::Host, LogLevel::Error, [&] {
    formed = true;
    return std::string();
  });
  REQUIRE_FALSE(formed);
}

TEST_CASE("A log shows its levels, by subsystem, in order") {
  Captured captured;
  cox::log::start(captured.options(LogLevel::Warn));
  cox::log::set_level(LogSubsystem::Memory, LogLevel::Debug);
  cox::log::write(LogSubsystem::Host, LogLevel::Info, [] { return std::string("too fine"); });
  cox::log::write(LogSubsystem::Host, LogLevel::Warn, [] { return std::string("one {} %d"); });
  cox::log::write(LogSubsystem::Memory, LogLevel::Debug, [] { return std::string("two"); });
  cox::log::flush();
  REQUIRE(captured.get() == std::vector<std::string>{"cox.host: one {} %d", "cox.memory: two"});
  cox::log::stop();
  cox::log::write(LogSubsystem::Host, LogLevel::Error, [] { return std::string("too late"); });
  REQUIRE(captured.get().size() == 2);
}

TEST_CASE("L12: the log is the sink of task errors that nobody takes") {
  Captured captured;
  cox::log::start(captured.options(LogLevel::Error));
  cox::report_task_error(
      {{.type = 0, .index = 1}, cox::StreamId{4}, std::make_exception_ptr(std::runtime_error("boom"))});
  cox::log::flush();
  REQUIRE(captured.get() ==
          std::vector<std::string>{"cox.device_handle: a task failed on DeviceId(type=0, index=1), stream 4: boom"});
  cox::log::stop();
}

TEST_CASE("A log whose file cannot be opened says so") {
  cox::LogOptions options;
  options.file = "/";
  REQUIRE_THROWS_AS(cox::log::start(options), cox::Error);
}
