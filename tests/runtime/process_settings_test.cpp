#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tests/support/temporary_file.hpp>
#include <coxswain/tests/support/variable.hpp>

#include <coxswain/runtime/config/process_settings.hpp>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

using cox::ConfigError;
using cox::settings;
using cox::test::kind_of;
using cox::test::message_of;
using cox::test::TemporaryFile;
using cox::test::Variable;

namespace {

std::uint64_t host_devices() { return settings().get<std::uint64_t>("host.devices"); }

std::string source_of(std::string_view key) { return to_string(settings().source(cox::find_setting(key))); }

}  // namespace

TEST_CASE("The process has the settings of code, environment, the file that COX_CONFIG names, and the defaults") {
  const TemporaryFile file("[host]\ndevices = 5\nthreads = 6\n");
  const Variable config("COX_CONFIG", file.path());
  CHECK(host_devices() == 5);
  CHECK(source_of("host.devices") == file.path() + ":2:11");
  {
    const Variable devices("COX_HOST_DEVICES", "7");
    CHECK(host_devices() == 7);
    CHECK(source_of("host.devices") == "environment COX_HOST_DEVICES");
    cox::set_settings({{"host.devices", 8U}});
    CHECK(host_devices() == 8);
    CHECK(source_of("host.devices") == "code");
    cox::reset_settings({"host.devices"});
    CHECK(host_devices() == 7);
  }
  CHECK(host_devices() == 5);
  CHECK(settings().get<std::uint64_t>("host.threads") == 6);
  CHECK(source_of("host.memory") == "default");
}

TEST_CASE("File and environment are read once") {
  cox::reload_settings();
  CHECK(host_devices() == 4);
  ::setenv("COX_HOST_DEVICES", "9", 1);
  CHECK(host_devices() == 4);
  cox::reload_settings();
  CHECK(host_devices() == 9);
  ::unsetenv("COX_HOST_DEVICES");
  cox::reload_settings();
}

TEST_CASE("What code sets is set as a whole or not at all") {
  CHECK(kind_of<ConfigError>([] { cox::set_settings({{"host.devices", 2U}, {"host.threads", 0U}}); }) ==
        ConfigError::Kind::OutOfRange);
  CHECK(message_of([] { cox::set_settings({{"host.devices", 2U}, {"host.thread", 1U}}); }) ==
        "there is no setting host.thread; the nearest is host.threads");
  CHECK(host_devices() == 4);
  CHECK(kind_of<ConfigError>([] { cox::reset_settings({"host.thread"}); }) == ConfigError::Kind::UnknownKey);
}

TEST_CASE("Settings that are wrong are refused at every call, and what code sets stays") {
  cox::set_settings({{"host.threads", 3U}});
  {
    const Variable devices("COX_HOST_DEVICES", "many");
    for (int call = 0; call < 2; ++call)
      CHECK(kind_of<ConfigError>([] { (void)settings(); }) == ConfigError::Kind::Malformed);
  }
  CHECK(settings().get<std::uint64_t>("host.threads") == 3);
  cox::reset_settings({"host.threads"});
}

TEST_CASE("Threads that ask for the first time together get the same") {
  const Variable devices("COX_HOST_DEVICES", "11");
  std::atomic<int> right{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&] {
      if (host_devices() == 11) ++right;
    });
  for (auto& thread : threads) thread.join();
  CHECK(right == 8);
}
