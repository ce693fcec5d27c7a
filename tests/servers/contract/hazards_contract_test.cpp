#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/servers/contract/compute_backend.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/runtime/memory/memory_report.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

using namespace cox::test;
using cox::Access;
using cox::Bytes;
using cox::Handle;

namespace {

/// How many elements: copies of few bytes and of many go different ways.
constexpr std::array<std::size_t, 3> sizes{1, 20'000, 1'200'000};
using Words = std::vector<std::uint32_t>;

}  // namespace

TEMPLATE_TEST_CASE("A buffer used on another stream is read after its writer", "", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device;
  const auto& client = device.client();
  const auto other = device.on_new_stream();
  for (const std::size_t size : sizes) {
    INFO(size << " elements");
    const Handle data = upload(client, Words(size, 1));
    const Handle seen = client.empty(4 * size);
    typename TestType::Gate write(client);
    launch(client, write.fill(data, 2));
    launch(other, TestType::copy(data, seen));
    auto copied = other.read_async(std::vector<Handle>{seen});
    auto itself = device.on_new_stream().read_async(std::vector<Handle>{data});
    write.wait_until_entered();
    CHECK_FALSE(copied.ready());
    CHECK_FALSE(itself.ready());
    write.open();
    CHECK(numbers(copied.get()[0]) == Words(size, 2));
    CHECK(numbers(itself.get()[0]) == Words(size, 2));
  }
}

TEMPLATE_TEST_CASE("A buffer used on another stream is written after its readers", "", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device;
  const auto& client = device.client();
  const auto other = device.on_new_stream();
  const auto third = device.on_new_stream();
  for (const std::size_t size : sizes) {
    INFO(size << " elements");
    const Handle data = upload(client, Words(size, 2));
    typename TestType::Gate first(client);
    typename TestType::Gate second(client);
    launch(other, first.sum(data));
    launch(third, second.sum(data));
    first.wait_until_entered();
    second.wait_until_entered();
    launch(client, TestType::fill(data, 3));
    auto filled = client.sync();
    CHECK_FALSE(filled.ready());
    first.open();
    other.sync().get();
    CHECK_FALSE(filled.ready());  // there is another reader
    second.open();
    filled.get();
    third.sync().get();
    CHECK(first.seen() == 2 * size);
    CHECK(second.seen() == 2 * size);
    CHECK(content(client, data) == Words(size, 3));

    typename TestType::Gate last(client);
    launch(other, last.sum(data));
    last.wait_until_entered();
    client.write(data, Bytes::copy_of(Words(size, 4)));
    auto written = client.sync();
    CHECK_FALSE(written.ready());
    last.open();
    written.get();
    other.sync().get();
    CHECK(last.seen() == 3 * size);
    CHECK(content(other, data) == Words(size, 4));
  }
}

TEMPLATE_TEST_CASE("A buffer used on another stream is written after its writer", "", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device;
  const auto& client = device.client();
  const auto other = device.on_new_stream();
  for (const std::size_t size : sizes) {
    INFO(size << " elements");
    const Handle data = upload(client, Words(size, 1));
    typename TestType::Gate slow(client);
    launch(client, slow.fill(data, 4));
    other.write(data, Bytes::copy_of(Words(size, 5)));
    slow.open();
    CHECK(content(client, data) == Words(size, 5));
    typename TestType::Gate slower(client);
    launch(other, slower.fill(data, 6));
    launch(client, TestType::multiply_add(data, 2, 1));
    slower.open();
    CHECK(content(other, data) == Words(size, 13));
  }
}

TEMPLATE_TEST_CASE("Readers on different streams run side by side", "", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device;
  const auto& client = device.client();
  const auto other = device.on_new_stream();
  const Handle data = upload(client, {1});
  typename TestType::Gate first(client);
  typename TestType::Gate second(client);
  launch(client, first.hold(data, Access::Read));
  launch(other, second.hold(data, Access::Read));
  first.wait_until_entered();
  second.wait_until_entered();  // while the first still runs
  first.open();
  second.open();
  client.sync().get();
  other.sync().get();
}

TEMPLATE_TEST_CASE("Many streams that write one buffer in turn lose nothing", "", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device({.threads = 3});
  const auto& client = device.client();
  std::vector<typename TestType::Client> streams;
  for (int i = 0; i < 8; ++i) streams.push_back(device.on_new_stream());
  const Handle data = upload(client, counted(64));
  auto expected = counted(64);
  for (std::uint32_t i = 0; i < 400; ++i) {
    launch(streams[i % streams.size()], TestType::multiply_add(data, 3, i));
    for (auto& value : expected) value = value * 3 + i;
  }
  REQUIRE(numbers(client.read_one(data)) == expected);
}

TEMPLATE_TEST_CASE(
    "L11: memory is nobody else's until the work that was given it has run, however early handles are dropped", "",
    COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device({.memory = 2 * TestType::min_memory});
  const auto& client = device.client();
  const auto other = device.on_new_stream();
  constexpr std::size_t elements = TestType::min_memory / 4 - 24;  // two buffers of as many fill the device
  typename TestType::Gate gate(client);
  {
    const Handle data = upload(client, Words(elements, 1));
    launch(client, gate.sum(data, Access::Write));
    (void)client.read_async(std::vector<Handle>{data});
  }
  gate.wait_until_entered();
  REQUIRE(client.memory_usage().number_allocs == 0);
  REQUIRE(client.memory_report().waiting >= 4 * elements);
  // One of these gets the memory that the kernel still reads: its first use waits.
  const Handle first = upload(other, Words(elements, 2));
  const Handle second = upload(other, Words(elements, 3));
  auto contents = other.read_async(std::vector<Handle>{first, second});
  REQUIRE_FALSE(contents.ready());
  gate.open();
  const auto found = contents.get();
  CHECK(numbers(found[0]) == Words(elements, 2));
  CHECK(numbers(found[1]) == Words(elements, 3));
  client.sync().get();
  REQUIRE(gate.seen() == elements);
  REQUIRE(client.memory_usage().peak_bytes_in_use == 2 * 4 * elements);
}
