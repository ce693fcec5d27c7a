#include <coxswain/tests/support/catch.hpp>

#include <coxswain/collectives/link/clock_offset.hpp>

#include <cstddef>
#include <cstdint>

using cox::detail::world::ClockOffset;

TEST_CASE("The offset of a clock is right within half of the round trip, whatever way took how long") {
  constexpr std::int64_t ahead = 5'000'000;  // of the other clock
  for (const std::int64_t there : {0, 10, 1000})
    for (const std::int64_t back : {0, 20, 3000}) {
      ClockOffset clock;
      const std::int64_t sent = 100;
      const std::int64_t held = 777;
      const std::int64_t answered = sent + there + held + ahead;
      const auto measured = clock.add(sent, held, answered, sent + there + held + back);
      CHECK(measured.error == static_cast<std::uint64_t>(there + back) / 2);
      const std::int64_t wrong = measured.offset > ahead ? measured.offset - ahead : ahead - measured.offset;
      CHECK(static_cast<std::uint64_t>(wrong) <= measured.error + 1);
    }
}

TEST_CASE("The measurement with the shortest round trip counts, as long as it is among the last") {
  ClockOffset clock;
  CHECK(clock.add(0, 0, 1005, 10).offset == 1000);
  CHECK(clock.add(100, 0, 1500, 200).offset == 1000);  // a slower one, which would say 1350
  CHECK(clock.add(100, 200, 1500, 200).error == 5);    // one that ends before it begins is none
  ClockOffset::Measured last{};
  for (std::size_t i = 0; i < ClockOffset::kept; ++i) last = clock.add(1000, 0, 3050, 1100);
  CHECK(last.offset == 2000);
  CHECK(last.error == 50);
}
