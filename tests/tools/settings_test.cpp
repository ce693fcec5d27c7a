#include <coxswain/tools/cox/argument_error.hpp>
#include <coxswain/tools/cox/settings.hpp>

#include <coxswain/tests/support/catch.hpp>

using namespace cox::tools;

TEST_CASE("Sizes are read with decimal and binary units") {
  CHECK(parse_size("--payload", "64") == 64);
  CHECK(parse_size("--payload", "64B") == 64);
  CHECK(parse_size("--payload", "4KiB") == 4096);
  CHECK(parse_size("--payload", "1MiB") == 1048576);
  CHECK(parse_size("--payload", "2GiB") == 2147483648);
  CHECK(parse_size("--payload", "3MB") == 3000000);
  for (const char* text : {"", "KiB", "-1", "1.5MiB", "1 MiB", "99999999999GiB", "99999999999999999999"})
    CHECK_THROWS_AS(parse_size("--payload", text), ArgumentError);
}

TEST_CASE("Settings are read in order") {
  const auto settings = parse_settings("--mix", "submit=40,read=1");
  REQUIRE(settings.size() == 2);
  CHECK(settings[0].name == "submit");
  CHECK(settings[0].value == "40");
  CHECK(settings[1].name == "read");
  CHECK(settings[1].value == "1");
}

TEST_CASE("Probabilities are from 0 to 1, and nothing else") {
  CHECK(parse_probability("--fault", "0") == 0);
  CHECK(parse_probability("--fault", "0.25") == 0.25);
  CHECK(parse_probability("--fault", "1e-3") == 0.001);
  for (const char* text : {"", "1.1", "-0.1", "nan", "inf", "0.1x"})
    CHECK_THROWS_AS(parse_probability("--fault", text), ArgumentError);
}
