#include <coxswain/runtime/memory/piece_map.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

using cox::PieceMap;

namespace {

PieceMap map_of(const std::vector<std::uint16_t>& sizes) {
  PieceMap map;
  std::size_t granules = 0;
  for (const std::uint16_t size : sizes) granules += size;
  map.reset(granules);
  PieceMap::Piece piece = 0;
  std::size_t first = 0;
  for (const std::uint16_t size : sizes) {
    map.put(first, ++piece, size);
    first += size;
  }
  return map;
}

}  // namespace

TEST_CASE("A piece is behind all of its granules until it is taken away", "[piece_map]") {
  PieceMap map = map_of({1, 4, 2});
  CHECK(map.piece_at(0) == 1);
  CHECK(map.piece_at(4) == 2);
  CHECK(map.size_at(4) == 4);
  map.remove(1);
  for (std::size_t i = 1; i < 5; ++i) CHECK(map.piece_at(i) == PieceMap::none);
  CHECK(map.piece_at(5) == 3);
}

TEST_CASE("The last pieces of a range are whole, next to each other, and no more than was asked for", "[piece_map]") {
  const PieceMap map = map_of({1, 4, 2, 8, 1, 1});  // begin at 0, 1, 5, 7, 15, 16
  const auto check = [&](const PieceMap::Run& run, std::size_t first, std::size_t count) {
    CHECK(run.first == first);
    CHECK(run.count == count);
  };
  constexpr auto exact = PieceMap::Excess::Forbidden;
  constexpr auto more = PieceMap::Excess::Allowed;
  check(map.last_whole(0, 17, 17, exact), 0, 17);
  check(map.last_whole(0, 17, 2, exact), 15, 2);
  check(map.last_whole(0, 17, 5, exact), 15, 2);
  check(map.last_whole(0, 17, 5, more), 7, 10);
  check(map.last_whole(0, 14, 17, exact), 0, 7);  // the piece of eight lies partly outside
  check(map.last_whole(3, 14, 17, exact), 5, 2);
  check(map.last_whole(0, 15, 3, exact), 5, 2);  // the piece of eight is too large
  CHECK(map.last_whole(8, 14, 17, more).count == 0);
  CHECK(map.last_whole(5, 5, 3, more).count == 0);
}

TEST_CASE("What is found in random maps is made of whole pieces, and nothing behind it was left out", "[piece_map]") {
  std::mt19937 random(7);
  for (int round = 0; round < 2000; ++round) {
    std::vector<std::uint16_t> sizes(1 + random() % 10);
    for (auto& size : sizes) size = static_cast<std::uint16_t>(1U << random() % 4);
    const PieceMap map = map_of(sizes);
    std::vector<std::size_t> borders{0};
    for (const auto size : sizes) borders.push_back(borders.back() + size);
    const std::size_t begin = random() % borders.back();
    const std::size_t end = begin + random() % (borders.back() - begin + 1);
    const std::size_t most = 1 + random() % 20;
    const auto run = map.last_whole(begin, end, most, PieceMap::Excess::Forbidden);
    if (run.count == 0) {
      for (std::size_t i = 0; i + 1 < borders.size(); ++i)  // no piece within the range would have fitted
        if (borders[i] >= begin && borders[i + 1] <= end) CHECK(borders[i + 1] - borders[i] > most);
      continue;
    }
    const auto is_border = [&](std::size_t place) { return std::ranges::find(borders, place) != borders.end(); };
    REQUIRE(run.first >= begin);
    REQUIRE(run.first + run.count <= end);
    REQUIRE(run.count <= most);
    REQUIRE(is_border(run.first));
    REQUIRE(is_border(run.first + run.count));
  }
}
