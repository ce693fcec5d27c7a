#include <coxswain/tests/servers/host/open_host.hpp>
#include <coxswain/tests/support/catch.hpp>

using namespace cox::test;
using cox::HostClient;

TEST_CASE("A client knows its device without asking it") {
  OpenHost host({.device_count = 3, .threads_per_device = 1}, 2);
  const HostClient& client = host.client();
  REQUIRE(client.device_id() == cox::DeviceId{.type = 0, .index = 2});
  REQUIRE(client.enumerate_devices(0).size() == 3);
  REQUIRE(client.enumerate_devices(1).empty());
  REQUIRE(client.device_count(0) == 3);
  REQUIRE(client.info().threads == 1);
  REQUIRE(client.features().contains(cox::Feature::DynamicCubeCount));
  REQUIRE(client.features().contains(cox::Feature::Graphs));
  REQUIRE_FALSE(client.features().contains(cox::Feature::TensorMaps));
}
