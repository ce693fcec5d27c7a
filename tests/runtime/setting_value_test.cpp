#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/runtime/config/setting_value.hpp>

#include <string>

using namespace std::chrono_literals;
using cox::CheckMode;
using cox::ConfigError;
using cox::find_setting;
using cox::LogLevel;
using cox::ProfileLevel;
using cox::QueuePolicy;
using cox::SettingSource;
using cox::SettingValue;
using cox::test::kind_of;
using cox::test::message_of;

namespace {

const SettingSource somewhere{.kind = SettingSource::Kind::File, .name = "some.toml", .line = 3, .column = 11};

SettingValue parse(std::string_view key, std::string_view text) {
  return cox::parse_setting_value(find_setting(key), text, somewhere);
}

SettingValue check(std::string_view key, SettingValue value) {
  return cox::checked_setting_value(find_setting(key), std::move(value), {.kind = SettingSource::Kind::Code});
}

std::string shown(std::string_view key, const SettingValue& value) { return cox::to_string(find_setting(key), value); }

}  // namespace

TEST_CASE("Text is read as the type that the setting has") {
  for (const char* text : {"true", "on", "1"}) CHECK(parse("log.stderr", text) == SettingValue(true));
  for (const char* text : {"false", "off", "0"}) CHECK(parse("log.stderr", text) == SettingValue(false));
  CHECK(parse("host.devices", "7") == SettingValue(std::uint64_t{7}));
  CHECK(parse("host.memory", "65536") == SettingValue(std::uint64_t{65536}));
  CHECK(parse("host.memory", "64MiB") == SettingValue(std::uint64_t{64} << 20U));
  CHECK(parse("device_thread.spin", "20us") == SettingValue(std::chrono::nanoseconds(20us)));
  CHECK(parse("log.file", "any where") == SettingValue(std::string("any where")));
  CHECK(parse("log.level", "debug") == SettingValue(LogLevel::Debug));
  CHECK(parse("device_thread.queue_policy", "fail") == SettingValue(QueuePolicy::Fail));
  CHECK(parse("profiling.level", "medium") == SettingValue(ProfileLevel::Medium));
  CHECK(parse("compilation.check_mode", "validate") == SettingValue(CheckMode::Validate));
}

TEST_CASE("Text that is no such value is refused with key, value, place and what is expected") {
  const auto refusal = [](std::string_view key, std::string_view text) {
    CHECK(kind_of<ConfigError>([&] { (void)parse(key, text); }) == ConfigError::Kind::Malformed);
    return message_of([&] { (void)parse(key, text); });
  };
  CHECK(refusal("host.devices", "many") ==
        "host.devices is \"many\" (some.toml:3:11): expected a whole number from 1 to 65535");
  CHECK(refusal("host.memory", "64XB") ==
        "host.memory is \"64XB\" (some.toml:3:11): expected a size such as 4096, 64KiB or 1GiB, at least 1B");
  CHECK(refusal("device_thread.spin", "20") ==
        "device_thread.spin is \"20\" (some.toml:3:11): expected a duration such as 20us or 10s, from 0s to 1s");
  CHECK(refusal("log.level", "WARN") ==
        "log.level is \"WARN\" (some.toml:3:11): expected one of trace, debug, info, warn, error, off");
  CHECK(refusal("device_thread.queue_policy", "drop") ==
        "device_thread.queue_policy is \"drop\" (some.toml:3:11): expected one of grow, block, fail");
  CHECK(refusal("profiling.level", "all") ==
        "profiling.level is \"all\" (some.toml:3:11): expected one of disabled, minimal, basic, medium, full");
  CHECK(refusal("compilation.check_mode", "off") ==
        "compilation.check_mode is \"off\" (some.toml:3:11): expected one of enforce, validate, auto");
  CHECK(refusal("log.stderr", "maybe") == "log.stderr is \"maybe\" (some.toml:3:11): expected true or false");
}

TEST_CASE("A value beyond what the setting may be is refused as out of range") {
  const auto kind = [](std::string_view key, std::string_view text) {
    return kind_of<ConfigError>([&] { (void)parse(key, text); });
  };
  CHECK(kind("host.devices", "0") == ConfigError::Kind::OutOfRange);
  CHECK(kind("host.devices", "65536") == ConfigError::Kind::OutOfRange);
  CHECK(kind("host.memory", "0MiB") == ConfigError::Kind::OutOfRange);
  CHECK(kind("device_thread.spin", "2s") == ConfigError::Kind::OutOfRange);
  CHECK(kind("device_thread.spin", "1s") == std::nullopt);
}

TEST_CASE("Values of code are checked as text is, and text stands for any of them") {
  CHECK(check("host.devices", 2U) == SettingValue(std::uint64_t{2}));
  CHECK(check("host.memory", "2KiB") == SettingValue(std::uint64_t{2048}));
  CHECK(check("log.level", LogLevel::Off) == SettingValue(LogLevel::Off));
  CHECK(message_of([] { (void)check("host.devices", 0U); }) ==
        "host.devices is 0 (code): expected a whole number from 1 to 65535");
  CHECK(message_of([] { (void)check("host.devices", true); }) ==
        "host.devices is true (code): expected a whole number from 1 to 65535");
  CHECK(message_of([] { (void)check("device_thread.spin", -1ns); }) ==
        "device_thread.spin is -1ns (code): expected a duration such as 20us or 10s, from 0s to 1s");
  CHECK(kind_of<ConfigError>([] { (void)check("log.level", QueuePolicy::Grow); }) == ConfigError::Kind::Malformed);
  CHECK(check("profiling.level", ProfileLevel::Full) == SettingValue(ProfileLevel::Full));
  CHECK(message_of([] { (void)check("profiling.level", CheckMode::Auto); }) ==
        "profiling.level is auto (code): expected one of disabled, minimal, basic, medium, full");
  CHECK(message_of([] { (void)check("compilation.check_mode", ProfileLevel::Full); }) ==
        "compilation.check_mode is full (code): expected one of enforce, validate, auto");
}

TEST_CASE("Values are shown as they are read") {
  CHECK(shown("host.memory", std::uint64_t{64} << 20U) == "64MiB");
  CHECK(shown("host.memory", std::uint64_t{1000}) == "1000B");
  CHECK(shown("host.devices", std::uint64_t{1024}) == "1024");
  CHECK(shown("device_thread.spin", 20us) == "20us");
  CHECK(shown("log.stderr", false) == "false");
  CHECK(shown("log.level", LogLevel::Trace) == "trace");
  CHECK(shown("device_thread.queue_policy", QueuePolicy::Block) == "block");
  CHECK(shown("profiling.level", ProfileLevel::Disabled) == "disabled");
  CHECK(shown("compilation.check_mode", CheckMode::Enforce) == "enforce");
}

TEST_CASE("What is quoted stays on one line and is not long") {
  CHECK(cox::in_quotes("a\nb") == "\"a?b\"");
  CHECK(cox::in_quotes(std::string(200, 'x')).size() < 100);
}
