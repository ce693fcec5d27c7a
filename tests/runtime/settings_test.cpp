#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/device_handle/service/device_thread_options.hpp>
#include <coxswain/runtime/client/apply_settings.hpp>
#include <coxswain/runtime/config/settings.hpp>
#include <coxswain/runtime/error/log.hpp>

#include <optional>
#include <string>

using namespace std::chrono_literals;
using cox::ConfigError;
using cox::LogLevel;
using cox::LogSubsystem;
using cox::QueuePolicy;
using cox::Settings;
using cox::SettingsEnvironment;
using cox::test::kind_of;
using cox::test::message_of;

namespace {

Settings from(const std::optional<std::string>& file, const SettingsEnvironment& environment = {}) {
  cox::SettingsOrigin origin;
  if (file) origin.file = {.name = "some.toml", .text = *file};
  origin.environment = environment;
  return Settings(origin);
}

std::string source(const Settings& settings, std::string_view key) {
  return to_string(settings.source(cox::find_setting(key)));
}

// What the file gives rise to, which must be a ConfigError of that kind.
std::string refusal(ConfigError::Kind kind, const std::string& file) {
  CAPTURE(file);
  CHECK(kind_of<ConfigError>([&] { (void)from(file); }) == kind);
  return message_of([&] { (void)from(file); });
}

std::string refusal(ConfigError::Kind kind, const SettingsEnvironment& environment) {
  CHECK(kind_of<ConfigError>([&] { (void)from(std::nullopt, environment); }) == kind);
  return message_of([&] { (void)from(std::nullopt, environment); });
}

}  // namespace

TEST_CASE("Without file and environment all settings have their defaults, which are those of the options") {
  const Settings settings;
  CHECK(settings.get<std::uint64_t>("host.devices") == 4);
  CHECK(source(settings, "host.devices") == "default");
  CHECK_FALSE(settings.given("host.devices"));
  CHECK_FALSE(settings.file());
  CHECK(cox::default_device_thread_options(settings) == cox::DeviceThreadOptions{});
  const cox::LogOptions options = log_options(settings);
  CHECK(options.level == cox::LogOptions{}.level);
  CHECK(options.own_levels == cox::LogOptions{}.own_levels);
  CHECK(options.to_stderr == cox::LogOptions{}.to_stderr);
  CHECK(options.file == cox::LogOptions{}.file);
  CHECK(options.queue_capacity == cox::LogOptions{}.queue_capacity);
}

TEST_CASE("Code goes before the environment, the environment before the file, the file before the default") {
  const std::string file = "[host]\ndevices = 5\nthreads = 6\nmemory = '7MiB'\n";
  Settings settings = from(file, {{"COX_HOST_DEVICES", "8"}, {"COX_HOST_THREADS", "9"}});
  settings.set("host.devices", 10U);
  CHECK(settings.get<std::uint64_t>("host.devices") == 10);
  CHECK(source(settings, "host.devices") == "code");
  CHECK(settings.get<std::uint64_t>("host.threads") == 9);
  CHECK(source(settings, "host.threads") == "environment COX_HOST_THREADS");
  CHECK(settings.get<std::uint64_t>("host.memory") == 7U << 20U);
  CHECK(source(settings, "host.memory") == "some.toml:4:10");
  CHECK(settings.get<std::chrono::nanoseconds>("device_thread.spin") == 250us);
  CHECK(source(settings, "device_thread.spin") == "default");
  CHECK(settings.file() == "some.toml");
}

TEST_CASE("A file gives every type of value, in tables or with dotted keys") {
  const Settings settings = from(R"(
    host.memory = 65536
    [device_thread]
    queue_policy = "block"
    queue_capacity = 1_000
    spin = "0s"
    stall_threshold = "1500us"
    histograms = false
    [log]
    level = "info"
    file = "cox.log"
  )");
  CHECK(settings.get<std::uint64_t>("host.memory") == 65536);
  const auto options = cox::default_device_thread_options(settings);
  CHECK(options.queue_policy == QueuePolicy::Block);
  CHECK(options.queue_capacity == 1000);
  CHECK(options.spin == 0ns);
  CHECK(options.stall_threshold == 2ms);  // rounded up
  CHECK_FALSE(options.histograms);
  CHECK(log_options(settings).level == LogLevel::Info);
  CHECK(log_options(settings).file == "cox.log");
}

TEST_CASE("The level of a subsystem is log.level unless it is given") {
  Settings settings = from("[log]\nlevel = 'error'\nmemory = 'trace'\n");
  CHECK(settings.get<LogLevel>("log.memory") == LogLevel::Trace);
  CHECK(settings.get<LogLevel>("log.host") == LogLevel::Error);
  CHECK(source(settings, "log.host") == "default (as log.level)");
  CHECK_FALSE(settings.given("log.host"));
  settings.set("log.level", LogLevel::Off);
  CHECK(settings.get<LogLevel>("log.host") == LogLevel::Off);
  const cox::LogOptions options = log_options(settings);
  CHECK(options.level_of(LogSubsystem::Memory) == LogLevel::Trace);
  CHECK(options.level_of(LogSubsystem::DeviceHandle) == LogLevel::Off);
}

TEST_CASE("A setting that is asked for as another type or does not exist is a ConfigError") {
  const Settings settings;
  CHECK(kind_of<ConfigError>([&] { (void)settings.get<bool>("host.devices"); }) == ConfigError::Kind::Malformed);
  CHECK(kind_of<ConfigError>([&] { (void)settings.get<bool>("host.device"); }) == ConfigError::Kind::UnknownKey);
  CHECK(kind_of<ConfigError>([&] { Settings().set("spin", "1us"); }) == ConfigError::Kind::UnknownKey);
}

TEST_CASE("An unknown key of a file is refused with its place, its value and the nearest known key") {
  using enum ConfigError::Kind;
  CHECK(refusal(UnknownKey, "[host]\ndevices = 2\n  device = 3\n") ==
        "host.device is 3 (some.toml:3:3): there is no such setting; the nearest is host.devices");
  CHECK(refusal(UnknownKey, "spin = '20us'\n") ==
        "spin is \"20us\" (some.toml:1:1): there is no such setting; the nearest is device_thread.spin");
  CHECK(refusal(UnknownKey, "[hots]\nmemory = 1\n") ==
        "hots is a table (some.toml:1:2): there is no such setting; the nearest is host");
}

TEST_CASE("A value of a file that cannot be is refused with its place, the value and what is expected") {
  using enum ConfigError::Kind;
  CHECK(refusal(Malformed, "[host]\ndevices = 'many'\n") ==
        "host.devices is \"many\" (some.toml:2:11): expected a whole number from 1 to 65535");
  CHECK(refusal(Malformed, "host.devices = '4'") ==
        "host.devices is \"4\" (some.toml:1:16): expected a whole number from 1 to 65535");
  CHECK(refusal(Malformed, "host.devices = 1.5") ==
        "host.devices is 1.5 (some.toml:1:16): expected a whole number from 1 to 65535");
  CHECK(refusal(Malformed, "host.devices = true") ==
        "host.devices is true (some.toml:1:16): expected a whole number from 1 to 65535");
  CHECK(refusal(Malformed, "host.devices = [1, 2]") ==
        "host.devices is an array (some.toml:1:16): expected a whole number from 1 to 65535");
  CHECK(refusal(Malformed, "[host.devices]\n") ==
        "host.devices is a table (some.toml:1:1): expected a whole number from 1 to 65535");
  CHECK(refusal(Malformed, "log.level = 1979-05-27") ==
        "log.level is 1979-05-27 (some.toml:1:13): expected one of trace, debug, info, warn, error, off");
  CHECK(refusal(Malformed, "log.stderr = 1") == "log.stderr is 1 (some.toml:1:14): expected true or false");
  CHECK(refusal(Malformed, "device_thread.spin = 20") ==
        "device_thread.spin is 20 (some.toml:1:22): expected a duration such as 20us or 10s, from 0s to 1s");
  CHECK(refusal(Malformed, "host = 4") == "host is 4 (some.toml:1:8): expected a table, [host]");
  CHECK(refusal(OutOfRange, "host.devices = 0") ==
        "host.devices is 0 (some.toml:1:16): expected a whole number from 1 to 65535");
  CHECK(refusal(OutOfRange, "host.memory = -1") ==
        "host.memory is -1 (some.toml:1:15): expected a size such as 4096, 64KiB or 1GiB, at least 1B");
  CHECK(refusal(OutOfRange, "device_thread.spin = '1min'") ==
        "device_thread.spin is \"1min\" (some.toml:1:22): expected a duration such as 20us or 10s, from 0s to 1s");
}

TEST_CASE("Text that is not TOML is refused with line and column") {
  for (const char* text : {"[host]\ndevices = = 4\n", "[host\n", "a = 'x\n", "[host]\ndevices = 1\ndevices = 2\n"}) {
    const std::string message = refusal(ConfigError::Kind::Malformed, text);
    CAPTURE(message);
    CHECK_THAT(message, Catch::Matchers::ContainsSubstring("some.toml:") &&
                            Catch::Matchers::ContainsSubstring(" is not TOML: "));
    CHECK(message.find('\n') == std::string::npos);
  }
  CHECK_THAT(refusal(ConfigError::Kind::Malformed, std::string("[host]\ndevices = = 4\n")),
             Catch::Matchers::ContainsSubstring("some.toml:2:11 "));
}

TEST_CASE("A variable that cannot be is refused with its name, its value and what is expected") {
  using enum ConfigError::Kind;
  CHECK(refusal(Malformed, SettingsEnvironment{{"COX_HOST_DEVICES", "many"}}) ==
        "host.devices is \"many\" (environment COX_HOST_DEVICES): expected a whole number from 1 to 65535");
  CHECK(refusal(OutOfRange, SettingsEnvironment{{"COX_HOST_DEVICES", "0"}}) ==
        "host.devices is \"0\" (environment COX_HOST_DEVICES): expected a whole number from 1 to 65535");
  for (const char* malformed : {"", "-1", "4x", " 4"})
    CHECK_THAT(refusal(Malformed, SettingsEnvironment{{"COX_HOST_DEVICES", malformed}}),
               Catch::Matchers::ContainsSubstring("host.devices is \"" + std::string(malformed) + '"'));
}

TEST_CASE("A variable that can only be meant as a setting and is none is refused with the nearest") {
  using enum ConfigError::Kind;
  CHECK(refusal(UnknownKey, SettingsEnvironment{{"COX_HOST_DEVICE", "4"}}) ==
        "environment COX_HOST_DEVICE is \"4\": there is no such setting; the nearest is COX_HOST_DEVICES");
  for (const auto& [name, nearest] : SettingsEnvironment{{"COX_HSOT_DEVICES", "COX_HOST_DEVICES"},
                                                         {"COX_LOG", "COX_LOG_LEVEL"},
                                                         {"COX_LOG_NETWORK", "COX_LOG_MEMORY"},
                                                         {"COX_CONF", "COX_CONFIG"},
                                                         {"COX_WORLD_PROCES", "COX_WORLD_PROCESS"},
                                                         {"COX_WORDL", "COX_WORLD"},
                                                         {"COX_WORLD_TIMEOUTS", "COX_WORLD_TIMEOUT"},
                                                         {"COX_WORLD_SIZE", "COX_WORLD_SILENCE"},
                                                         {"COX_DEVICE_THREAD_SPINS", "COX_DEVICE_THREAD_SPIN"}})
    CHECK_THAT(refusal(UnknownKey, SettingsEnvironment{{name, "x"}}),
               Catch::Matchers::ContainsSubstring("the nearest is " + nearest));
}

TEST_CASE("Variables of others pass, also such as begin with COX_") {
  for (const char* name :
       {"COX_JOBS", "COX_BUILD_TESTS", "COX_FETCH_DEPENDENCIES", "COX_SANITIZE", "COX_CONFIG", "COX_FAULT_REPORT",
        "COX_LAST_FAULT", "COX_RESTART", "COX_WORLD", "COX_WORLD_PROCESS", "COX_WORLD_TOKEN", "COX_HOSTNAME",
        "COX_LOGIN", "COXSWAIN", "HOST_DEVICES", "cox_host_devices"}) {
    CAPTURE(name);
    CHECK_NOTHROW(from(std::nullopt, {{name, "?"}}));
  }
}
