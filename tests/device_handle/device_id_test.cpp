#include <coxswain/device_handle/base/device_id.hpp>

#include <coxswain/tests/support/catch.hpp>

#include <unordered_set>

using cox::DeviceId;

TEST_CASE("Device ids are ordered by type, then index, and print the name that the tools use", "[device_id]") {
  CHECK(DeviceId{0, 1} < DeviceId{1, 0});
  CHECK(DeviceId{0, 1} < DeviceId{0, 2});
  CHECK(DeviceId{} == DeviceId{0, 0});
  CHECK(DeviceId{1, 65'535}.to_string() == "cuda:65535");
  CHECK(DeviceId{0, 1}.to_string() == "host:1");
  CHECK(DeviceId{7, 0}.to_string() == "type7:0");
}

TEST_CASE("Device ids that differ have hashes that differ", "[device_id]") {
  std::unordered_set<std::size_t> hashes;
  for (std::uint16_t type = 0; type < 20; ++type) {
    for (std::uint16_t index = 0; index < 100; ++index) hashes.insert(std::hash<DeviceId>{}({type, index}));
  }
  CHECK(hashes.size() == 2000);
}
