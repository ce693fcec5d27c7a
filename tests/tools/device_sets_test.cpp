#include <coxswain/tools/cox/stress/device_sets.hpp>

#include <coxswain/tests/support/catch.hpp>

#include <algorithm>
#include <set>

using namespace cox::stress;

TEST_CASE("Communicators are of all devices, of pairs, and of other sets, none of them twice") {
  for (const std::size_t devices : {2U, 3U, 4U, 5U, 8U, 256U}) {
    CAPTURE(devices);
    Random random(devices);
    const std::vector<DeviceSet> sets = choose_device_sets(devices, random);
    CHECK(sets.front().size() == devices);
    CHECK(std::set<DeviceSet>(sets.begin(), sets.end()).size() == sets.size());
    bool pair = false;
    for (const DeviceSet& set : sets) {
      REQUIRE(set.size() >= 2);
      REQUIRE(std::adjacent_find(set.begin(), set.end(), std::greater_equal<>()) == set.end());
      REQUIRE(set.back() < devices);
      pair |= set.size() == 2;
    }
    CHECK(pair);
  }
}

TEST_CASE("Equal seeds choose equal sets") {
  Random one(1);
  Random same(1);
  Random other(2);
  const auto sets = choose_device_sets(16, one);
  CHECK(sets == choose_device_sets(16, same));
  CHECK(sets != choose_device_sets(16, other));
}
