#include <coxswain/tests/support/catch.hpp>

#include <coxswain/collectives/link/stall.hpp>

#include <chrono>
#include <cstdint>

using cox::detail::world::Stall;
using namespace std::chrono_literals;
using Next = Stall::Next;

namespace {

constexpr Stall::Time start{1000s};
constexpr auto limit = 30s;

struct StalledLink {
  Stall stall;
  std::uint64_t received = 100;
  bool is_awaited = true;
  Stall::Time running_since{};

  Next after(std::chrono::nanoseconds time) {
    return stall.check(is_awaited, received, limit, running_since, start + time);
  }
};

}  // namespace

TEST_CASE("L16: a link is broken if what was sent before the answer does not arrive in time", "[world]") {
  StalledLink link;
  CHECK(link.after(0s) == Next::Nothing);
  CHECK(link.after(14s) == Next::Nothing);
  CHECK(link.after(15s) == Next::Ask);
  link.stall.note_sent(101, start + 17s);
  CHECK(link.after(18s) == Next::Nothing);
  link.stall.note_sent(500, start + 40s);  // the first one counts
  CHECK(link.after(46s) == Next::Nothing);
  CHECK(link.after(47s) == Next::IsBroken);
}

TEST_CASE("The other end is asked again after a quarter of the limit, until it has sent more than has arrived") {
  StalledLink link;
  CHECK(link.after(0s) == Next::Nothing);
  CHECK(link.after(16s) == Next::Ask);
  link.stall.note_sent(100, start + 16s);
  CHECK(link.after(17s) == Next::Nothing);
  CHECK(link.after(23s) == Next::Nothing);
  CHECK(link.after(24s) == Next::Ask);
  CHECK(link.after(31s) == Next::Nothing);
  CHECK(link.after(32s) == Next::Ask);
  link.received = 101;  // for what is awaited next, the time begins anew
  CHECK(link.after(33s) == Next::Nothing);
  CHECK(link.after(47s) == Next::Nothing);
  CHECK(link.after(48s) == Next::Ask);
}

TEST_CASE("A link is not broken while bytes arrive, or while nothing was sent", "[world]") {
  StalledLink link;
  CHECK(link.after(0s) == Next::Nothing);
  CHECK(link.after(15s) == Next::Ask);
  link.stall.note_sent(100, start + 16s);  // all of that has arrived: its ranks have not submitted
  CHECK(link.after(100s) == Next::Ask);
  link.stall.note_sent(102, start + 101s);
  link.received = 101;
  CHECK(link.after(131s) == Next::Nothing);
  CHECK(link.after(145s) == Next::Nothing);
  CHECK(link.after(146s) == Next::Ask);
}

TEST_CASE("A link is not broken while nothing is awaited, and an answer that comes then is not kept", "[world]") {
  StalledLink link;
  link.is_awaited = false;
  CHECK(link.after(0s) == Next::Nothing);
  link.stall.note_sent(200, start + 1s);
  CHECK(link.after(100s) == Next::Nothing);
  link.is_awaited = true;
  link.stall.note_sent(200, start + 199s);
  CHECK(link.after(200s) == Next::Nothing);
  CHECK(link.after(214s) == Next::Nothing);
  CHECK(link.after(215s) == Next::Ask);
  CHECK(link.after(229s) == Next::Ask);
}

TEST_CASE("The time in which this process was stopped does not count for a link", "[world]") {
  StalledLink link;
  CHECK(link.after(0s) == Next::Nothing);
  link.running_since = start + 100s;
  CHECK(link.after(100s) == Next::Nothing);
  CHECK(link.after(115s) == Next::Ask);
  link.stall.note_sent(200, start + 116s);
  link.running_since = start + 200s;
  CHECK(link.after(200s) == Next::Nothing);
  CHECK(link.after(229s) == Next::Nothing);
  CHECK(link.after(230s) == Next::IsBroken);
}
