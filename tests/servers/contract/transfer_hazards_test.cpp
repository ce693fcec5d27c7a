// H4: transfers that cross (seed-semantics 3.10).

#include <coxswain/tests/servers/contract/fleet.hpp>
#include <coxswain/tests/servers/contract/ranks.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

using namespace cox;
using namespace cox::test;

namespace {

/// Each of two threads copies so many bytes to the other one's device, so many times, without waiting for the other.
template <class Fleet>
void cross(std::size_t bytes, std::size_t times) {
  Fleet fleet(2);
  constexpr std::size_t at_once = 3;  // what a thread keeps of the memory that it received
  std::array<bool, 2> right{};
  const auto numbers = [&](std::size_t rank) { return numbers_of(rank, bytes / sizeof(std::int32_t)); };
  in_parallel(2, [&](std::size_t rank) {
    auto& here = fleet[rank];
    auto& there = fleet[1 - rank];
    const Handle source = to_device(here, numbers(rank));
    std::vector<Handle> received(at_once);
    for (std::size_t i = 0; i < times; ++i) {
      received[i % at_once] = {};
      received[i % at_once] = here.to_client(source, there, ElementType::I32);
      if (i % at_once == 0) settle(here);
    }
    right[rank] = read_soon(there, received[(times - 1) % at_once]) == numbers(rank);
  });
  REQUIRE(right == std::array{true, true});
}

}  // namespace

TEMPLATE_TEST_CASE("H4: small transfers may cross", "", COX_FLEETS) { cross<TestType>(4 << 10, 1000); }

TEMPLATE_TEST_CASE("H4: transfers of 1 MB may cross", "", COX_FLEETS) { cross<TestType>(1 << 20, 200); }

TEMPLATE_TEST_CASE("H4: transfers of 64 MB may cross", "", COX_FLEETS) { cross<TestType>(64 << 20, 10); }

TEMPLATE_TEST_CASE("H4: transfers of 64 MB may cross 1,000 times", "[.long]", COX_FLEETS) {
  cross<TestType>(64 << 20, 1000);
}
