#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/servers/contract/compute_backend.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <cstdint>
#include <vector>

using namespace cox::test;
using cox::CubeCount;
using cox::Handle;

TEMPLATE_TEST_CASE("Kernels run for every unit, in the order of their stream", "", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device;
  const auto& client = device.client();
  const auto values = counted(1000);
  const Handle data = upload(client, values);
  for (int i = 0; i < 3; ++i) launch(client, TestType::multiply_add(data, 3, 1));
  auto expected = values;
  for (auto& value : expected) value = 27 * value + 13;
  REQUIRE(numbers(client.read_one(data)) == expected);
}

TEMPLATE_TEST_CASE("Every unit of every cube runs once, and knows where it is", "", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device;
  const auto& client = device.client();
  constexpr std::uint32_t units = 4;
  const Handle data = upload(client, std::vector<std::uint32_t>(3 * 4 * 5 * units, 77'777));
  launch(client, TestType::indices(data, {3, 4, 5}));
  std::vector<std::uint32_t> expected;
  for (std::uint32_t z = 0; z < 5; ++z)
    for (std::uint32_t y = 0; y < 4; ++y)
      for (std::uint32_t x = 0; x < 3; ++x)
        for (std::uint32_t unit = 0; unit < units; ++unit) expected.push_back(x + 10 * y + 100 * z + 1000 * unit);
  REQUIRE(content(client, data) == expected);
}

TEMPLATE_TEST_CASE("A kernel has the windows that it is given, in order", "", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device;
  const auto& client = device.client();
  const Handle all = upload(client, counted(10));
  const Handle sum = client.empty(16);
  launch(client, TestType::add(all.offset_start(4).offset_end(20), all.offset_start(24), sum));
  REQUIRE(content(client, sum) == std::vector<std::uint32_t>{7, 9, 11, 13});
  launch(client, TestType::fill(all.offset_start(8).offset_end(24), 5));
  REQUIRE(content(client, all) == std::vector<std::uint32_t>{0, 1, 5, 5, 4, 5, 6, 7, 8, 9});
}

TEMPLATE_TEST_CASE("A cube count without cubes is no work at all, static or dynamic", "", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device;
  const auto& client = device.client();
  const Handle data = upload(client, {7});
  launch(client, TestType::fill(data, 1).with_count({0, 1, 1}));
  launch(client, TestType::impossible().with_count({1, 0, 1}));
  launch(client, TestType::fill(data, 1).with_count(CubeCount::dynamic(upload(client, {1, 1, 0}))));
  REQUIRE(content(client, data) == std::vector<std::uint32_t>{7});
}

TEMPLATE_TEST_CASE("A dynamic cube count is read when it is the kernel's turn, not before", "", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device;
  const auto& client = device.client();
  const Handle count = upload(client, {0, 0, 0});
  const Handle data = upload(client, std::vector<std::uint32_t>(64));
  typename TestType::Gate gate(client);
  launch(client, gate.copy(upload(client, {2, 1, 1}), count));
  launch(client, TestType::multiply_add(data, 1, 5).with_count(CubeCount::dynamic(count)));
  gate.open();
  REQUIRE(content(client, data) == std::vector<std::uint32_t>(64, 5));
}

TEMPLATE_TEST_CASE("An unchecked launch of no cubes is no work at all", "", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device;
  const auto& client = device.client();
  client.launch_unchecked(TestType::impossible().kernel, {1, 0, 1}, {});
  client.sync().get();
}
