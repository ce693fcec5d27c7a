#include <coxswain/runtime/trace/timeline_row.hpp>

#include <coxswain/tests/support/catch.hpp>

#include <cstddef>
#include <random>
#include <utility>
#include <vector>

using cox::trace::detail::arrange;
using cox::trace::detail::Slice;

namespace {

using Times = std::vector<std::pair<std::uint64_t, std::uint64_t>>;

Slice span(std::uint64_t begin, std::uint64_t end) { return {begin, end, nullptr, false}; }
Slice moment(std::uint64_t at) { return {at, at, nullptr, true}; }

Times arranged(std::vector<Slice> row) {
  arrange(row);
  Times times;
  for (const Slice& slice : row) times.emplace_back(slice.begin, slice.end);
  return times;
}

}  // namespace

TEST_CASE("Slices that nest stay as they are, in order") {
  CHECK(arranged({span(50, 60), span(0, 100), span(100, 200), span(0, 40)}) ==
        Times{{0, 100}, {0, 40}, {50, 60}, {100, 200}});
}

TEST_CASE("A moment gets a length that ends before the next slice and inside the one around it") {
  CHECK(arranged({moment(1000), moment(1030), span(1500, 2000), moment(1950)}) ==
        Times{{1000, 1030}, {1030, 1130}, {1500, 2000}, {1950, 2000}});
}

TEST_CASE("Of two slices that overlap by a little the first is cut") {
  CHECK(arranged({span(0, 105), span(100, 200)}) == Times{{0, 100}, {100, 200}});
}

TEST_CASE("Whatever there was, of two slices one contains the other or they lie apart") {
  std::mt19937 random(1);  // any seed will do
  for (int round = 0; round < 200; ++round) {
    std::vector<Slice> row;
    for (int i = 0; i < 30; ++i) {
      const std::uint64_t begin = random() % 2000;
      row.push_back(random() % 2 == 0 ? moment(begin) : span(begin, begin + random() % 500));
    }
    const Times times = arranged(row);
    REQUIRE(times.size() == row.size());
    std::vector<std::uint64_t> open;
    for (const auto& [begin, end] : times) {
      REQUIRE(begin <= end);
      while (!open.empty() && open.back() <= begin) open.pop_back();
      REQUIRE((open.empty() || end <= open.back()));
      open.push_back(end);
    }
  }
}
