#include <coxswain/collectives/leader/broken_links.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

using cox::detail::world::BrokenLinks;
using namespace std::chrono_literals;

namespace {

constexpr BrokenLinks::Time begin_of_time{1000s};

struct LinksOfWorld {
  BrokenLinks links;

  void breaks(std::uint16_t process, std::uint16_t other, std::chrono::nanoseconds at = 0s) {
    links.add(process, other, begin_of_time + at);
  }
  /// Which processes leave, in this order.
  std::vector<std::uint16_t> leaving(std::optional<std::uint16_t> stays = {}, std::chrono::nanoseconds until = 0s) {
    std::vector<std::uint16_t> processes;
    for (const auto& each : links.take_leaving(begin_of_time + until, stays)) processes.push_back(each.process);
    return processes;
  }
};

using Processes = std::vector<std::uint16_t>;

}  // namespace

TEST_CASE("Of two processes without a link the one with the higher number leaves, once") {
  LinksOfWorld world;
  world.breaks(3, 5);
  world.breaks(5, 3);
  CHECK(world.links.take_leaving(begin_of_time, {}) == std::vector<BrokenLinks::Leaving>{{5, {3}}});
  CHECK(world.leaving().empty());
}

TEST_CASE("A process without links to all others leaves alone, whatever its number") {
  for (std::uint16_t bad = 0; bad < 8; ++bad) {
    CAPTURE(bad);
    LinksOfWorld world;
    for (std::uint16_t other = 0; other < 8; ++other)
      if (other != bad) world.breaks(other, bad);
    CHECK(world.leaving() == Processes{bad});
  }
}

TEST_CASE("Two such processes leave, and none of the others") {
  LinksOfWorld world;
  for (std::uint16_t other = 0; other < 8; ++other)
    for (const std::uint16_t bad : Processes{1, 2})
      if (other != bad) world.breaks(other, bad);
  CHECK(world.leaving() == Processes{2, 1});
}

TEST_CASE("Of two halves without links to each other the one with the higher numbers leaves, or the smaller one") {
  LinksOfWorld halves;
  for (const std::uint16_t one : Processes{0, 1, 2})
    for (const std::uint16_t other : Processes{3, 4, 5}) halves.breaks(one, other);
  CHECK(halves.leaving() == Processes{5, 4, 3});
  LinksOfWorld parts;
  for (const std::uint16_t one : Processes{0, 1})
    for (const std::uint16_t other : Processes{2, 3, 4, 5}) parts.breaks(one, other);
  CHECK(parts.leaving() == Processes{1, 0});
}

TEST_CASE("The process that leads the world stays, and those without a link to it leave first") {
  LinksOfWorld leader;
  for (const std::uint16_t other : Processes{1, 2, 3}) leader.breaks(0, other);
  CHECK(leader.leaving(0) == Processes{3, 2, 1});
  LinksOfWorld other;
  other.breaks(0, 1);
  other.breaks(1, 2);
  other.breaks(2, 3);
  CHECK(other.leaving(0) == Processes{1, 2});
}

TEST_CASE("A link that has broken lately counts to choose a process, but no process leaves for it yet") {
  LinksOfWorld world;
  world.breaks(1, 2, 0s);
  world.breaks(1, 4, 3s);
  world.breaks(5, 6, 3s);
  world.breaks(5, 6, 9s);  // known already
  CHECK(world.leaving({}, 2s) == Processes{1});
  CHECK(world.leaving({}, 2s).empty());
  CHECK(world.leaving({}, 3s) == Processes{6});
}

TEST_CASE("For a link of a process that is gone no process leaves") {
  LinksOfWorld world;
  world.breaks(1, 2);
  world.breaks(2, 3);
  world.links.remove(2);
  world.links.remove(4);
  CHECK(world.leaving().empty());
}
