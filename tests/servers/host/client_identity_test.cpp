#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/servers/host/open_host.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/runtime/io_error.hpp>
#include <coxswain/runtime/vector_sizes.hpp>

#include <cstdint>
#include <stdexcept>
#include <vector>

using namespace cox::test;
using cox::HostClient;
using cox::IoError;

TEST_CASE("A client has the devices of its server and the vectors of its device") {
  OpenHost host({.device_count = 3, .threads_per_device = 1}, 1);
  const HostClient& client = host.client();
  CHECK(client.device_count_total() == 3);
  const auto devices = client.enumerate_all_devices();
  REQUIRE(devices.size() == 3);
  for (std::uint16_t i = 0; i < 3; ++i) CHECK(devices[i] == cox::DeviceId{.type = cox::host_device_type, .index = i});
  CHECK(devices == client.enumerate_devices(cox::host_device_type));
  CHECK(client.device_count(7) == 0);

  const auto sizes = client.io_optimized_vector_sizes(4);
  const auto expected = cox::io_optimized_vector_sizes(client.properties().hardware, 4);
  CHECK(sizes == expected);
  CHECK(sizes.front() * 4 * 8 <= client.properties().hardware.load_width_bits);
  CHECK(sizes[sizes.size() - 1] == 1);
  CHECK(client.io_optimized_vector_sizes(4096).size() == 1);
  CHECK(kind_of<IoError>([&] { (void)client.io_optimized_vector_sizes(0); }) == IoError::Kind::ElementSize);
}

TEST_CASE("A client is pinned to a stream, its copies are what they are, and unpinned it has the thread's") {
  OpenHost host;
  const HostClient& unpinned = host.client();
  CHECK(unpinned.stream_id() == cox::StreamId::current());
  HostClient pinned = unpinned;
  const auto stream = cox::StreamId::allocate();
  pinned.set_stream(stream);
  CHECK(pinned.stream_id() == stream);
  CHECK(unpinned.stream_id() == cox::StreamId::current());
  const HostClient copy = pinned;
  CHECK(copy.stream_id() == stream);
  CHECK(copy.empty(4).stream() == stream);
  const cox::StreamScope scope(cox::StreamId::allocate());
  CHECK(unpinned.stream_id() == cox::StreamId::current());
  CHECK(pinned.stream_id() == stream);
}

TEST_CASE("exclusive gives what its callable returns or throws, and the device serves on") {
  OpenHost host;
  const HostClient& client = host.client();
  int one = 1;
  CHECK(&client.exclusive([&]() -> int& { return one; }) == &one);
  CHECK_THROWS_AS(client.exclusive([] { throw std::out_of_range("as it should"); }), std::out_of_range);
  CHECK(numbers(client.read_one(upload(client, {4}))) == std::vector<std::uint32_t>{4});
  client.sync().get();  // what it threw is the caller's, not the stream's
}
