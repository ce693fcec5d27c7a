#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tests/support/temporary_file.hpp>

#include <coxswain/device_handle/base/error.hpp>
#include <coxswain/device_handle/base/task_error.hpp>
#include <coxswain/runtime/client/apply_settings.hpp>
#include <coxswain/runtime/config/process_settings.hpp>
#include <coxswain/runtime/error/log.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
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
  REQUIRE(captured.get() == std::vector<std::string>{"cox.device_handle: a task failed on host:1, stream 4: boom"});
  cox::log::stop();
}

TEST_CASE("A log whose file cannot be opened says so") {
  cox::LogOptions options;
  options.file = "/";
  REQUIRE_THROWS_AS(cox::log::start(options), cox::Error);
}

TEST_CASE("A log has a level of its own for each subsystem, and does not start anew when only a stopped one would") {
  Captured captured;
  cox::LogOptions options = captured.options(LogLevel::Off);
  options.own_levels[static_cast<std::size_t>(LogSubsystem::Cuda)] = LogLevel::Info;
  CHECK(cox::log::start_if_stopped(options));
  CHECK(cox::log::enabled(LogSubsystem::Cuda, LogLevel::Info));
  CHECK_FALSE(cox::log::enabled(LogSubsystem::Host, LogLevel::Error));
  CHECK_FALSE(cox::log::start_if_stopped(captured.options(LogLevel::Trace)));
  CHECK_FALSE(cox::log::enabled(LogSubsystem::Host, LogLevel::Error));
  cox::log::stop();
}

TEST_CASE("A log that starts only if it is stopped leaves the task errors to a callback that is set") {
  std::string reported;
  cox::set_task_error_callback([&](const cox::TaskError& task) { reported = cox::describe(task.error); });
  Captured captured;
  CHECK(cox::log::start_if_stopped(captured.options(LogLevel::Error)));
  cox::report_task_error({{}, {}, std::make_exception_ptr(std::runtime_error("boom"))});
  cox::log::stop();
  CHECK(captured.get().empty());
  cox::report_task_error({{}, {}, std::make_exception_ptr(std::runtime_error("again"))});
  CHECK(reported == "again");
  cox::set_task_error_callback({});
}

TEST_CASE("The settings log.* become the options of a log") {
  cox::set_settings({{"log.level", "info"}, {"log.host", "off"}, {"log.stderr", false}});
  cox::log::start(cox::log_options(cox::settings()));
  CHECK(cox::log::enabled(LogSubsystem::Memory, LogLevel::Info));
  CHECK_FALSE(cox::log::enabled(LogSubsystem::Memory, LogLevel::Debug));
  CHECK_FALSE(cox::log::enabled(LogSubsystem::Host, LogLevel::Error));
  cox::log::stop();
  cox::reset_settings({"log.level", "log.host", "log.stderr"});
}

TEST_CASE("L12: a task error that the log does not take is written to stderr") {
  Captured captured;
  cox::log::start(captured.options(LogLevel::Off));
  const cox::test::TemporaryFile file("");
  std::fflush(stderr);
  const int saved = ::dup(STDERR_FILENO);
  const int redirected = ::open(file.path().c_str(), O_WRONLY | O_TRUNC);
  REQUIRE(::dup2(redirected, STDERR_FILENO) == STDERR_FILENO);
  cox::report_task_error({{0, 1}, cox::StreamId{4}, std::make_exception_ptr(std::runtime_error("boom"))});
  std::fflush(stderr);
  ::dup2(saved, STDERR_FILENO);
  ::close(saved);
  ::close(redirected);
  cox::log::stop();
  std::ifstream in(file.path());
  std::string line;
  CHECK(std::getline(in, line));
  CHECK(line == "coxswain: a task failed on host:1, stream 4: boom");
  CHECK_FALSE(std::getline(in, line));
  CHECK(captured.get().empty());
}
