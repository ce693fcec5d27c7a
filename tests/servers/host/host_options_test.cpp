#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tests/support/variable.hpp>

#include <coxswain/runtime/config/config_error.hpp>
#include <coxswain/runtime/config/settings.hpp>
#include <coxswain/servers/host/server/host_options.hpp>

using cox::ConfigError;
using cox::test::kind_of;
using cox::test::mentions;
using cox::test::message_of;
using cox::test::Variable;

TEST_CASE("The defaults of host options are those of the settings") {
  REQUIRE(cox::host_options(cox::Settings()) == cox::HostOptions{});
}

TEST_CASE("Host options come from code, else from the environment, else from the defaults") {
  cox::reset_host_options();
  REQUIRE(cox::host_options() == cox::HostOptions{});
  REQUIRE(cox::host_device_count() == 4);
  const Variable devices("COX_HOST_DEVICES", "7");
  const Variable memory("COX_HOST_MEMORY", "65536");
  REQUIRE(cox::host_device_count() == 7);
  REQUIRE(cox::host_options().memory_capacity == 65536);
  cox::set_host_device_count(2);
  REQUIRE(cox::host_device_count() == 2);
  REQUIRE(cox::host_options().memory_capacity == 65536);
  cox::reset_host_options();
  REQUIRE(cox::host_device_count() == 7);
}

TEST_CASE("A variable that is no number it may be is named with its value") {
  cox::reset_host_options();
  for (const char* malformed : {"many", "", "-1", "4x", " 4"}) {
    const Variable devices("COX_HOST_DEVICES", malformed);
    REQUIRE(kind_of<ConfigError>([] { (void)cox::host_options(); }) == ConfigError::Kind::Malformed);
    REQUIRE(mentions(message_of([] { (void)cox::host_options(); }), {"COX_HOST_DEVICES", malformed}));
  }
  for (const char* wrong : {"0", "65536"}) {
    const Variable devices("COX_HOST_DEVICES", wrong);
    REQUIRE(kind_of<ConfigError>([] { (void)cox::host_options(); }) == ConfigError::Kind::OutOfRange);
  }
}

TEST_CASE("Options of nothing are refused") {
  REQUIRE(kind_of<ConfigError>([] { cox::set_host_device_count(0); }) == ConfigError::Kind::OutOfRange);
  REQUIRE(kind_of<ConfigError>([] {
            cox::set_host_options({.device_count = 1, .threads_per_device = 0, .memory_capacity = 1});
          }) == ConfigError::Kind::OutOfRange);
}
