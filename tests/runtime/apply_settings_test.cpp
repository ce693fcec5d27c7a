#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tests/support/temporary_file.hpp>
#include <coxswain/tests/support/variable.hpp>

#include <coxswain/device_handle/service/device_thread_options.hpp>
#include <coxswain/runtime/client/apply_settings.hpp>
#include <coxswain/runtime/error/log.hpp>
#include <coxswain/runtime/trace/trace.hpp>

#include <fstream>
#include <sstream>

using namespace std::chrono_literals;
using cox::ConfigError;
using cox::LogLevel;
using cox::LogSubsystem;
using cox::test::kind_of;
using cox::test::message_of;
using cox::test::TemporaryFile;
using cox::test::Variable;

namespace {

// Nobody has set options for it.
cox::DeviceThreadOptions options_of_any_device() { return cox::device_thread_options({.type = 999, .index = 0}); }

}  // namespace

TEST_CASE("Applied settings are the default of the device threads that start from then on") {
  {
    const Variable spin("COX_DEVICE_THREAD_SPIN", "5us");
    const Variable policy("COX_DEVICE_THREAD_QUEUE_POLICY", "block");
    cox::apply_settings();
    CHECK(options_of_any_device().spin == 5us);
    CHECK(options_of_any_device().queue_policy == cox::QueuePolicy::Block);
    cox::set_settings({{"device_thread.spin", 6us}});
    CHECK(options_of_any_device().spin == 5us);
    cox::apply_settings();
    CHECK(options_of_any_device().spin == 6us);
  }
  cox::reset_settings({"device_thread.spin"});
  cox::apply_settings();
  CHECK(options_of_any_device() == cox::DeviceThreadOptions{});
}

TEST_CASE("Settings of the log start it, and none leave it off") {
  cox::log::stop();
  cox::apply_settings();
  CHECK_FALSE(cox::log::enabled(LogSubsystem::Host, LogLevel::Error));
  const TemporaryFile file("");
  {
    const Variable path("COX_LOG_FILE", file.path());
    const Variable standard_error("COX_LOG_STDERR", "false");
    const Variable level("COX_LOG_HOST", "debug");
    cox::apply_settings();
    CHECK(cox::log::enabled(LogSubsystem::Host, LogLevel::Debug));
    CHECK_FALSE(cox::log::enabled(LogSubsystem::Memory, LogLevel::Info));
    cox::log::write(LogSubsystem::Host, LogLevel::Debug, [] { return std::string("to the file"); });
    cox::log::stop();
  }
  std::ostringstream text;
  text << std::ifstream(file.path()).rdbuf();
  CHECK_THAT(text.str(), Catch::Matchers::ContainsSubstring("to the file"));
}

TEST_CASE("A trace file that cannot be written is a wrong setting, and nothing is traced") {
  const Variable path("COX_TRACE_FILE", "/nowhere/trace.json");
  CHECK_THAT(message_of([] { cox::apply_settings(); }), Catch::Matchers::ContainsSubstring("trace.file") &&
                                                            Catch::Matchers::ContainsSubstring("/nowhere/trace.json"));
  CHECK(kind_of<ConfigError>([] { cox::apply_settings(); }) == ConfigError::Kind::Unreadable);
  CHECK_FALSE(cox::trace::enabled());
}

TEST_CASE("A log that code has started stays as it is") {
  cox::LogOptions options;
  options.level = LogLevel::Error;
  options.to_stderr = false;
  cox::log::start(options);
  {
    const Variable level("COX_LOG_LEVEL", "trace");
    cox::apply_settings();
    CHECK_FALSE(cox::log::enabled(LogSubsystem::Host, LogLevel::Warn));
  }
  cox::log::stop();
}

TEST_CASE("A log file that cannot be opened is refused with its setting") {
  cox::log::stop();
  const Variable path("COX_LOG_FILE", "/");
  CHECK(kind_of<ConfigError>([] { cox::apply_settings(); }) == ConfigError::Kind::Unreadable);
  CHECK_THAT(message_of([] { cox::apply_settings(); }),
             Catch::Matchers::ContainsSubstring("log.file is \"/\" (environment COX_LOG_FILE): "));
}

TEST_CASE("Settings that are wrong are refused at every attempt to apply them") {
  const Variable spin("COX_DEVICE_THREAD_SPIN", "long");
  for (int attempt = 0; attempt < 2; ++attempt)
    CHECK(kind_of<ConfigError>([] { cox::apply_settings(); }) == ConfigError::Kind::Malformed);
}
