#include <coxswain/runtime/memory/granularity.hpp>
#include <coxswain/tests/support/catch.hpp>

using namespace cox;

TEST_CASE("Sizes are rounded to whole granules", "[memory]") {
  constexpr Granularity granule{4096};
  CHECK(granule.round_up(0) == 0);
  CHECK(granule.round_up(1) == 4096);
  CHECK(granule.round_up(4096) == 4096);
  CHECK(granule.round_up(4097) == 8192);
  CHECK(granule.round_down(4095) == 0);
  CHECK(granule.round_down(8191) == 4096);
}

TEST_CASE("The granules inside a range are the last whole ones, hardly more than asked for", "[memory]") {
  constexpr Granularity granule{4096};
  const auto is = [](const MemoryRange& range, MemoryAddress address, std::size_t bytes) {
    return range.address == address && range.bytes == bytes;
  };
  CHECK(is(granule.last_within({4096, 3 * 4096}, 1 << 20), 4096, 3 * 4096));
  CHECK(is(granule.last_within({4095, 3 * 4096}, 1 << 20), 4096, 2 * 4096));
  CHECK(is(granule.last_within({512, 3 * 4096}, 1 << 20), 4096, 2 * 4096));
  CHECK(is(granule.last_within({4096, 3 * 4096}, 4096), 3 * 4096, 4096));
  CHECK(is(granule.last_within({4096, 3 * 4096}, 4097), 2 * 4096, 2 * 4096));
  CHECK(granule.last_within({512, 4096}, 1 << 20).bytes == 0);
  CHECK(granule.last_within({512, 512}, 1 << 20).bytes == 0);
}
