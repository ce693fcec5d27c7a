// The order in which a device makes the ends of its collectives known.
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/servers/cuda/collective/completion_order.hpp>

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

using cox::detail::CompletionOrder;

namespace {

std::uint64_t take(CompletionOrder& order) {
  order.reserve();
  return order.take();
}

}  // namespace

TEST_CASE("An end is made known when all turns before it have been issued, in whatever order they were") {
  CompletionOrder order;
  CHECK(order.all_issued(order.last()));
  const std::uint64_t first = take(order);
  const std::uint64_t second = take(order);
  const std::uint64_t third = take(order);
  CHECK(order.last() == third);
  CHECK(order.all_issued(first - 1));
  CHECK_FALSE(order.all_issued(first));
  std::string ends;
  order.when_issued(third, [&] { ends += 'c'; });
  order.when_issued(first, [&] { ends += 'a'; });
  order.when_issued(second, [&] { ends += 'b'; });
  order.issued(third);
  order.issued(second);
  CHECK(ends.empty());
  order.issued(first);
  CHECK(ends == "abc");
  CHECK(order.all_issued(order.last()));
}

TEST_CASE("What waits for one turn comes in the order in which it came") {
  CompletionOrder order;
  const std::uint64_t turn = take(order);
  std::string ends;
  for (const char c : {'a', 'b', 'c'}) order.when_issued(turn, [&ends, c] { ends += c; });
  order.issued(turn);
  CHECK(ends == "abc");
}

TEST_CASE("Turns issued in any order make every end known once, and none too soon") {
  std::mt19937_64 random(7);
  for (int round = 0; round < 200; ++round) {
    CompletionOrder order;
    std::vector<std::uint64_t> turns(1 + random() % 20);
    for (std::uint64_t& turn : turns) turn = take(order);
    std::vector<bool> issued(turns.size() + 1);
    std::vector<int> known(turns.size() + 1);
    bool too_soon = false;
    for (const std::uint64_t turn : turns)
      order.when_issued(turn, [&, turn] {
        ++known[turn];
        for (std::uint64_t before = 1; before <= turn; ++before) too_soon = too_soon || !issued[before];
      });
    std::ranges::shuffle(turns, random);
    for (const std::uint64_t turn : turns) {
      issued[turn] = true;
      order.issued(turn);
    }
    REQUIRE_FALSE(too_soon);
    REQUIRE(std::ranges::count(known, 1) == static_cast<std::ptrdiff_t>(turns.size()));
  }
}

TEST_CASE("Any number of turns may be issued before the first, and more come meanwhile") {
  CompletionOrder order;
  const std::uint64_t first = take(order);
  for (int i = 0; i < 1000; ++i) {
    const std::uint64_t turn = take(order);
    order.reserve();
    order.cancel();
    order.issued(turn);
    REQUIRE_FALSE(order.all_issued(turn));
    REQUIRE_FALSE(order.all_issued(first));
  }
  order.issued(first);
  CHECK(order.all_issued(order.last()));
  const std::uint64_t next = take(order);
  CHECK_FALSE(order.all_issued(next));
  order.issued(next);
  CHECK(order.all_issued(next));
}
