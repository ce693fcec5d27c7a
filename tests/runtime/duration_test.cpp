#include <coxswain/tests/support/catch.hpp>

#include <coxswain/runtime/config/duration.hpp>

using namespace std::chrono_literals;
using cox::format_duration;
using cox::parse_duration;

TEST_CASE("Durations are read with their unit") {
  CHECK(parse_duration("0s") == 0ns);
  CHECK(parse_duration("20ns") == 20ns);
  CHECK(parse_duration("20us") == 20us);
  CHECK(parse_duration("3ms") == 3ms);
  CHECK(parse_duration("10s") == 10s);
  CHECK(parse_duration("2min") == 2min);
  CHECK(parse_duration("24h") == 24h);
}

TEST_CASE("What is no duration is not read") {
  for (const char* text : {"", "20", "us", "-1us", "+1us", "1.5s", "20 us", "20US", " 20us", "20us ", "1d",
                           "99999999999h", "99999999999999999999ns"}) {
    CAPTURE(text);
    CHECK(parse_duration(text) == std::nullopt);
  }
}

TEST_CASE("Durations are shown with the largest unit that divides them, and are read back as they were") {
  CHECK(format_duration(0ns) == "0s");
  CHECK(format_duration(1500ns) == "1500ns");
  CHECK(format_duration(20us) == "20us");
  CHECK(format_duration(1500ms) == "1500ms");
  CHECK(format_duration(120s) == "2min");
  CHECK(format_duration(24h) == "24h");
  for (const auto duration : {1ns, 999ns, std::chrono::nanoseconds(1h), std::chrono::nanoseconds::max()})
    CHECK(parse_duration(format_duration(duration)) == duration);
}
