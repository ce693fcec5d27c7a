// L11: memory of collectives and transfers, however early its handles are dropped.

#include <coxswain/tests/servers/contract/fleet.hpp>
#include <coxswain/tests/servers/contract/ranks.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

using namespace cox;
using namespace cox::test;

namespace {

constexpr std::size_t world = 3;

/// One operation of three ranks: how much a rank gives and gets, in parts of `count`, and what it gets.
struct ThreeRankOperation {
  std::string name;
  std::size_t gives;
  std::size_t gets;
  std::function<void(CollectiveGroup&, const Handle& source, const Handle& destination, DeviceId root)> ask;
  std::function<Numbers(std::size_t rank, std::size_t count)> result;
};

Numbers joined(std::size_t count, const std::function<Numbers(std::size_t)>& of_rank) {
  Numbers all;
  for (std::size_t rank = 0; rank < world; ++rank) {
    const Numbers part = of_rank(rank);
    all.insert(all.end(), part.begin(), part.end());
  }
  all.resize(world * count);
  return all;
}

const std::vector<ThreeRankOperation>& three_rank_operations() {
  constexpr auto type = ElementType::I32;
  static const std::vector<ThreeRankOperation> all{
      {"all_reduce", 1, 1, [](auto& group, auto& from, auto& to, DeviceId) { group.all_reduce(from, to, type); },
       [](std::size_t, std::size_t count) { return sum_of(world, count); }},
      {"reduce", 1, 1,
       [](auto& group, auto& from, auto& to, DeviceId root) {
         group.reduce(from, to, type, ReduceOperation::Sum, root);
       },
       [](std::size_t rank, std::size_t count) { return rank == 1 ? sum_of(world, count) : Numbers{}; }},
      {"broadcast", 1, 1,
       [](auto& group, auto& from, auto& to, DeviceId root) { group.broadcast(from, to, type, root); },
       [](std::size_t, std::size_t count) { return numbers_of(1, count); }},
      {"all_gather", 1, world, [](auto& group, auto& from, auto& to, DeviceId) { group.all_gather(from, to, type); },
       [](std::size_t, std::size_t count) {
         return joined(count, [&](std::size_t rank) { return numbers_of(rank, count); });
       }},
      {"reduce_scatter", world, 1,
       [](auto& group, auto& from, auto& to, DeviceId) { group.reduce_scatter(from, to, type); },
       [](std::size_t rank, std::size_t count) { return part_of(sum_of(world, world * count), rank, count); }},
      {"all_to_all", world, world,
       [](auto& group, auto& from, auto& to, DeviceId) { group.all_to_all(from, to, type); },
       [](std::size_t rank, std::size_t count) {
         return joined(count, [&](std::size_t from) { return part_of(numbers_of(from, world * count), rank, count); });
       }},
  };
  return all;
}

/// Takes and overwrites what is free of that size.
template <class Client>
void overwrite_free_memory(const Client& client, std::size_t bytes) {
  for (int i = 0; i < 4; ++i) client.write(client.empty(bytes), Bytes::copy_of(Numbers(bytes / 4, -1)));
}

}  // namespace

TEMPLATE_TEST_CASE("L11: a collective has its sources though their handles are dropped and the memory is taken", "",
                   COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, world);
  TestType fleet(world);
  const CommunicationId all(fleet.devices());
  const DeviceId root = fleet.devices()[1];
  for (const ThreeRankOperation& operation : three_rank_operations())
    for (const std::size_t count : {1UL, 100UL, 5'000UL, 300'000UL}) {
      INFO(operation.name << " of " << count);
      std::vector<Handle> results;
      fleet.for_each([&](std::size_t rank, auto& client) {
        Handle source = to_device(client, numbers_of(rank, operation.gives * count));
        const std::size_t bytes = source.size();
        results.push_back(client.empty(operation.gets * count * sizeof(std::int32_t)));
        client.collective_group(all,
                                [&](CollectiveGroup& group) { operation.ask(group, source, results.back(), root); });
        source = {};
        overwrite_free_memory(client, bytes);  // before the others have asked
        reach(client);
      });
      fleet.for_each([&](std::size_t rank, auto& client) {
        const Numbers expected = operation.result(rank, count);
        settle(client);
        if (!expected.empty()) REQUIRE(read_soon(client, results[rank]) == expected);
      });
    }
}

TEMPLATE_TEST_CASE("L11: a collective does not disturb whoever has the memory after it", "", COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, world);
  TestType fleet(world);
  const CommunicationId all(fleet.devices());
  const DeviceId root = fleet.devices()[1];
  for (const ThreeRankOperation& operation : three_rank_operations())
    for (const std::size_t count : {1UL, 100UL, 5'000UL, 300'000UL}) {
      INFO(operation.name << " of " << count);
      std::vector<std::vector<Handle>> later(world);
      fleet.for_each([&](std::size_t rank, auto& client) {
        const std::size_t bytes = operation.gets * count * sizeof(std::int32_t);
        {
          const Handle source = to_device(client, numbers_of(rank, operation.gives * count));
          const Handle destination = client.empty(bytes);
          client.collective_group(all,
                                  [&](CollectiveGroup& group) { operation.ask(group, source, destination, root); });
        }
        for (int i = 0; i < 3; ++i) later[rank].push_back(to_device(client, Numbers(operation.gets * count, 7)));
      });
      fleet.for_each([&](std::size_t rank, auto& client) {
        settle(client);
        for (const Handle& handle : later[rank])
          REQUIRE(read_soon(client, handle) == Numbers(operation.gets * count, 7));
      });
    }
}

TEMPLATE_TEST_CASE("L11: what is received into recycled memory waits for the kernels that still use it", "",
                   COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 2);
  TestType fleet(2);
  constexpr std::size_t count = 100'000;
  const DeviceId from = fleet.devices()[0];
  for (int round = 0; round < 5; ++round) {
    auto& client = fleet[1];
    auto busy = client;
    busy.set_stream(StreamId::allocate());
    const Handle source = to_device(fleet[0], numbers_of(3, count));
    Handle recycled = to_device(busy, numbers_of(1, count));
    get_soon(busy.sync());
    typename TestType::Hold hold;
    hold.launch(busy);
    hold.wait_until_entered();
    auto read = busy.read_async(std::vector<Handle>{recycled});  // the work that still uses it
    recycled = {};
    std::vector<Handle> received;
    auto same_stream = round % 2 == 0 ? busy : client;  // on one stream the memory is taken again at once
    for (int i = 0; i < 3; ++i) {
      received.push_back(same_stream.empty(count * sizeof(std::int32_t)));
      same_stream.receive(received.back(), ElementType::I32, from);
      fleet[0].send(source, ElementType::I32, fleet.devices()[1]);
    }
    hold.open();
    REQUIRE(get_soon(std::move(read))[0].template to_vector<std::int32_t>() == numbers_of(1, count));
    for (const Handle& handle : received) REQUIRE(read_soon(client, handle) == numbers_of(3, count));
  }
}

TEMPLATE_TEST_CASE("L11: a collective waits for what other streams do with its memory", "", COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 2);
  TestType fleet(2);
  constexpr std::size_t count = 100'000;
  const CommunicationId all(fleet.devices());
  const Handle source = to_device(fleet[0], numbers_of(7, count));
  const Handle destination = to_device(fleet[0], numbers_of(8, count));
  auto busy = fleet[0];
  busy.set_stream(StreamId::allocate());
  typename TestType::Hold hold;
  hold.launch(busy);
  hold.wait_until_entered();
  busy.write(source, Bytes::copy_of(numbers_of(0, count)));
  auto before = busy.read_async(std::vector<Handle>{destination});
  fleet[0].all_reduce(source, destination, ElementType::I32, all);
  const Sum other(fleet[1], all, count);
  reach(fleet[1]);
  hold.open();
  REQUIRE(get_soon(std::move(before))[0].template to_vector<std::int32_t>() == numbers_of(8, count));
  REQUIRE(read_soon(fleet[0], destination) == sum_of(2, count));
  REQUIRE(other.right(fleet[1]));
}

// It moves nothing, but it was the last to use the memory.
TEMPLATE_TEST_CASE("L11: what uses memory after a refused operation waits for what used it before", "", COX_FLEETS) {
  using Backend = typename TestType::Backend;
  COX_REQUIRE_FLEET(TestType, 2);
  TestType fleet(2);
  const auto& devices = fleet.devices();
  const auto& first = fleet[0];
  const auto& second = fleet[1];
  auto reader = first;
  reader.set_stream(StreamId::allocate());
  constexpr std::size_t count = 100;
  const Handle data = to_device(first, numbers_of(0, count));
  const Handle other = to_device(second, numbers_of(1, count));
  const bool transfer = GENERATE(false, true);
  CAPTURE(transfer);
  const auto ask = [&](ElementType mine, ElementType its) {
    if (transfer) {
      first.receive(data, mine, devices[1]);
      second.send(other, its, devices[0]);
    } else {
      first.all_reduce(data, data, mine, devices);
      second.all_reduce(other, other, its, devices);
    }
  };
  // The communicator is made, and the code of both types is loaded: loading waits for kernels that run.
  for (const ElementType type : {ElementType::I32, ElementType::F32}) ask(type, type);
  fleet.for_each([](std::size_t, auto& client) { settle(client); });

  typename Backend::Gate gate(first);
  launch(first, gate.fill(data, 7));
  gate.wait_until_entered();
  ask(ElementType::I32, ElementType::F32);
  REQUIRE(kinds_of(failures_of(second)) == std::vector{Kind::Mismatch});
  first.device_handle().submit_blocking([](auto&) {});
  reader.accept(data);
  Future<std::vector<Bytes>> read = reader.read_async(std::vector<Handle>{data});
  REQUIRE_FALSE(read.wait_for(std::chrono::milliseconds(100)));
  gate.open();
  REQUIRE(get_soon(std::move(read))[0].template to_vector<std::int32_t>() == Numbers(count, 7));
  REQUIRE(kinds_of(failures_of(first)) == std::vector{Kind::Mismatch});
}

TEMPLATE_TEST_CASE("L11: what is sent is what the stream had at that point, and is not overwritten before", "",
                   COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 2);
  TestType fleet(2);
  constexpr std::size_t count = 100'000;
  std::vector<Handle> received;
  const Handle data = fleet[0].empty(count * sizeof(std::int32_t));
  for (std::size_t i = 0; i < 10; ++i) {
    fleet[0].write(data, Bytes::copy_of(numbers_of(i, count)));
    received.push_back(fleet[0].to_client(data, fleet[1], ElementType::I32));
  }
  for (std::size_t i = 0; i < 10; ++i) REQUIRE(read_soon(fleet[1], received[i]) == numbers_of(i, count));
}

TEMPLATE_TEST_CASE("L11: handles and clients may be dropped while a collective waits for its other rank", "",
                   COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 2);
  TestType fleet(2);
  const CommunicationId all(fleet.devices());
  {
    auto client = std::make_unique<typename TestType::Client>(fleet[0]);
    static_cast<void>(Sum(*client, all, 1000));
    client.reset();
  }
  const Sum other(fleet[1], all, 1000);
  REQUIRE(other.right(fleet[1]));
  settle(fleet[0]);
  REQUIRE(fleet[0].memory_usage().number_allocs == 0);
}
