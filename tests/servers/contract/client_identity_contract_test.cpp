#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/servers/contract/compute_backend.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/runtime/error/io_error.hpp>
#include <coxswain/runtime/tensor/vector_sizes.hpp>

#include <cstdint>
#include <stdexcept>
#include <vector>

using namespace cox::test;
using cox::IoError;

TEMPLATE_TEST_CASE("A client has the devices of its server and the vectors of its device", "", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  const DeviceOptions options{.threads = 1, .devices = 3};
  const std::size_t count = TestType::device_count(options);
  const auto last = static_cast<std::uint16_t>(count - 1);
  OpenDevice<TestType> device(options, last);
  const auto& client = device.client();
  CHECK(client.device_id() == cox::DeviceId{.type = TestType::device_type, .index = last});
  CHECK(client.device_count_total() == count);
  const auto devices = client.enumerate_all_devices();
  REQUIRE(devices.size() == count);
  for (std::uint16_t i = 0; i < count; ++i)
    CHECK(devices[i] == cox::DeviceId{.type = TestType::device_type, .index = i});
  CHECK(devices == client.enumerate_devices(TestType::device_type));
  CHECK(client.device_count(TestType::device_type) == count);
  CHECK(client.device_count(7) == 0);
  CHECK(client.enumerate_devices(7).empty());
  CHECK(client.features().contains(cox::Feature::DynamicCubeCount));
  CHECK(client.features().contains(cox::Feature::Graphs));

  const auto sizes = client.io_optimized_vector_sizes(4);
  const auto expected = cox::io_optimized_vector_sizes(client.properties().hardware, 4);
  CHECK(sizes == expected);
  CHECK(sizes.front() * 4 * 8 <= client.properties().hardware.load_width_bits);
  CHECK(sizes[sizes.size() - 1] == 1);
  CHECK(client.io_optimized_vector_sizes(4096).size() == 1);
  CHECK(kind_of<IoError>([&] { (void)client.io_optimized_vector_sizes(0); }) == IoError::Kind::ElementSize);
}

TEMPLATE_TEST_CASE("A client is pinned to a stream, its copies are what they are, and unpinned it has the thread's", "",
                   COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device;
  const auto& unpinned = device.client();
  CHECK(unpinned.stream_id() == cox::StreamId::current());
  auto pinned = unpinned;
  const auto stream = cox::StreamId::allocate();
  pinned.set_stream(stream);
  CHECK(pinned.stream_id() == stream);
  CHECK(unpinned.stream_id() == cox::StreamId::current());
  const auto copy = pinned;
  CHECK(copy.stream_id() == stream);
  CHECK(copy.empty(4).stream() == stream);
  const cox::StreamScope scope(cox::StreamId::allocate());
  CHECK(unpinned.stream_id() == cox::StreamId::current());
  CHECK(pinned.stream_id() == stream);
}

TEMPLATE_TEST_CASE("exclusive gives what its callable returns or throws, and the device serves on", "", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device;
  const auto& client = device.client();
  int one = 1;
  CHECK(&client.exclusive([&]() -> int& { return one; }) == &one);
  CHECK_THROWS_AS(client.exclusive([] { throw std::out_of_range("as it should"); }), std::out_of_range);
  CHECK(numbers(client.read_one(upload(client, {4}))) == std::vector<std::uint32_t>{4});
  client.sync().get();  // what it threw is the caller's, not the stream's
}
