#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tests/support/log_lines.hpp>

#include <coxswain/collectives/world/silence.hpp>

#include <chrono>
#include <string>
#include <vector>

using cox::detail::world::Silence;
using namespace std::chrono_literals;

TEST_CASE("L16: a silence is too long only if something is awaited, and counts from when it is", "[world]") {
  const Silence::Time start{1000s};
  Silence silence;
  const auto after = [&](std::chrono::nanoseconds time, bool is_awaited) {
    return silence.is_too_long("process 1", start, is_awaited, 30s, start + time);
  };
  CHECK_FALSE(after(40s, false));
  CHECK_FALSE(after(41s, true));
  CHECK_FALSE(after(70s, true));
  CHECK(after(71s, true));
  CHECK_FALSE(after(72s, false));
  CHECK_FALSE(after(73s, true));
  // It has been heard.
  CHECK_FALSE(silence.is_too_long("process 1", start + 100s, true, 30s, start + 129s));
  CHECK(silence.is_too_long("process 1", start + 100s, true, 30s, start + 130s));
}

TEST_CASE("A silence of five seconds is reported once, until the other end is heard", "[world]") {
  const Silence::Time start{1000s};
  Silence silence;
  cox::test::LogLines lines(cox::LogSubsystem::Collectives, cox::LogLevel::Warn);
  const auto look = [&](Silence::Time heard, Silence::Time now) {
    static_cast<void>(silence.is_too_long("process 1", heard, false, 30s, now));
  };
  look(start, start + 4s);
  CHECK(lines.get().empty());
  look(start, start + 5s);
  look(start, start + 6s);
  CHECK(lines.get() == std::vector<std::string>{"process 1 has been silent for 5.0 s"});
  look(start + 7s, start + 8s);
  look(start + 7s, start + 12s);
  CHECK(lines.get().size() == 2);
}
