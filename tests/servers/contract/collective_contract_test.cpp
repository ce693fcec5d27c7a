#include <coxswain/tests/servers/contract/fleet.hpp>
#include <coxswain/tests/servers/contract/ranks.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

using namespace cox;
using namespace cox::test;

TEMPLATE_TEST_CASE("all_reduce gives every rank the reduction", "", COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 4);
  TestType fleet(4);
  std::vector<Handle> results;
  fleet.for_each([&](std::size_t rank, auto& client) {
    const Handle source = to_device(client, numbers_of(rank, 1000));
    results.push_back(client.empty(source.size()));
    client.all_reduce(source, results.back(), ElementType::I32, fleet.devices());
  });
  fleet.for_each([&](std::size_t rank, auto& client) {
    client.sync_collective();
    REQUIRE(from_device<std::int32_t>(client, results[rank]) == sum_of(4, 1000));
  });
}

TEMPLATE_TEST_CASE("Every collective moves what its name says", "", COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 3);
  TestType fleet(3);
  constexpr std::size_t count = 12;
  const DeviceId root = fleet.devices()[1];
  const CommunicationId all(fleet.devices());
  struct Results {
    Handle reduce, broadcast, gather, scatter, exchange;
  };
  std::vector<Results> results(3);
  fleet.for_each([&](std::size_t rank, auto& client) {
    const Handle source = to_device(client, numbers_of(rank, count));
    const auto memory = [&](std::size_t elements) { return client.empty(elements * sizeof(std::int32_t)); };
    Results& its = results[rank] = {memory(count), memory(count), memory(3 * count), memory(count / 3), memory(count)};
    client.reduce(source, its.reduce, ElementType::I32, all, ReduceOperation::Max, root);
    client.broadcast(source, its.broadcast, ElementType::I32, all, root);
    client.all_gather(source, its.gather, ElementType::I32, all);
    client.reduce_scatter(source, its.scatter, ElementType::I32, all);
    client.all_to_all(source, its.exchange, ElementType::I32, all);
    client.barrier(all);
  });
  REQUIRE(from_device<std::int32_t>(fleet[1], results[1].reduce) == numbers_of(2, count));
  Numbers gathered;
  for (std::size_t rank = 0; rank < 3; ++rank) {
    const Numbers part = numbers_of(rank, count);
    gathered.insert(gathered.end(), part.begin(), part.end());
  }
  fleet.for_each([&](std::size_t rank, auto& client) {
    const Results& its = results[rank];
    Numbers exchanged;
    for (std::size_t from = 0; from < 3; ++from) {
      const Numbers part = part_of(numbers_of(from, count), rank, count / 3);
      exchanged.insert(exchanged.end(), part.begin(), part.end());
    }
    REQUIRE(from_device<std::int32_t>(client, its.broadcast) == numbers_of(1, count));
    REQUIRE(from_device<std::int32_t>(client, its.gather) == gathered);
    REQUIRE(from_device<std::int32_t>(client, its.scatter) == part_of(sum_of(3, count), rank, count / 3));
    REQUIRE(from_device<std::int32_t>(client, its.exchange) == exchanged);
  });
}

TEMPLATE_TEST_CASE("Transfers between two devices come in the order of each way", "", COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 2);
  TestType fleet(2);
  std::vector<Handle> received[2];
  fleet.for_each([&](std::size_t rank, auto& client) {
    const DeviceId other = fleet.devices()[1 - rank];
    for (std::size_t i = 0; i < 10; ++i) {
      client.send(to_device(client, numbers_of(10 * rank + i, 100)), ElementType::I32, other);
      received[rank].push_back(client.empty(100 * sizeof(std::int32_t)));
      client.receive(received[rank].back(), ElementType::I32, other);
    }
  });
  fleet.for_each([&](std::size_t rank, auto& client) {
    for (std::size_t i = 0; i < 10; ++i)
      REQUIRE(from_device<std::int32_t>(client, received[rank][i]) == numbers_of(10 * (1 - rank) + i, 100));
  });
}

TEMPLATE_TEST_CASE("to_client copies memory to another device, also with padding and within one", "", COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 2);
  TestType fleet(2);
  const Numbers numbers = numbers_of(3, 6 * 7);
  const Handle there = fleet[0].to_client(to_device(fleet[0], numbers), fleet[1], ElementType::I32);
  REQUIRE(from_device<std::int32_t>(fleet[1], there) == numbers);
  const Handle same = fleet[0].to_client(to_device(fleet[0], numbers), fleet[0], ElementType::I32);
  REQUIRE(from_device<std::int32_t>(fleet[0], same) == numbers);

  const Shape shape{6, 7};
  const MemoryLayout tensor = fleet[0].create_tensor(Bytes::copy_of(numbers), shape, sizeof(std::int32_t));
  const MemoryLayout moved =
      fleet[0].to_client_tensor(tensor.copy_descriptor(shape, sizeof(std::int32_t)), fleet[1], ElementType::I32);
  REQUIRE(
      fleet[1].read_one_tensor(moved.copy_descriptor(shape, sizeof(std::int32_t))).template to_vector<std::int32_t>() ==
      numbers);
}
