#include <coxswain/tests/support/catch.hpp>

#include <coxswain/collectives/nccl/completed_prefix.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <optional>
#include <random>
#include <vector>

using cox::detail::CompletedPrefix;

TEST_CASE("The prefix grows when all operations before have ended") {
  CompletedPrefix prefix;
  const auto note = [&](std::vector<std::uint64_t> ended) { return prefix.note(ended); };
  CHECK(note({2}) == std::nullopt);
  CHECK(note({3, 5}) == std::nullopt);
  CHECK(note({1}) == 3);
  CHECK(note({}) == std::nullopt);
  CHECK(note({4, 6}) == 6);
}

TEST_CASE("In any order, the prefix is what has ended without a gap") {
  std::mt19937 random(7);
  std::vector<std::uint64_t> order(50);
  std::iota(order.begin(), order.end(), 1);
  std::ranges::shuffle(order, random);
  CompletedPrefix prefix;
  std::uint64_t last = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    last = prefix.note({&order[i], 1}).value_or(last);
    std::vector<std::uint64_t> ended(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    std::ranges::sort(ended);
    std::uint64_t expected = 0;
    while (expected < ended.size() && ended[expected] == expected + 1) ++expected;
    REQUIRE(last == expected);
  }
  CHECK(last == order.size());
}
