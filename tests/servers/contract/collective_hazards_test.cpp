// The deadlocks of the seeds that need no transfer, no failure and no shutdown (seed-semantics 3.10), each of which
// must not be one.

#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/servers/contract/fleet.hpp>
#include <coxswain/tests/servers/contract/ranks.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/device_handle/base/call_error.hpp>
#include <coxswain/device_handle/handle/device_handle.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

using namespace cox;
using namespace cox::test;

TEMPLATE_TEST_CASE("H1: a collective asked for from two threads ends without any further call", "", COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 2);
  TestType fleet(2);
  std::optional<Sum> sums[2];
  in_parallel(2, [&](std::size_t rank) { sums[rank].emplace(fleet[rank], fleet.devices(), 1000); });
  wait_until([] {
    const auto operations = recorded_operations();
    return operations.size() == 2 && std::ranges::all_of(operations, [](const nlohmann::json& operation) {
             return operation.at("state") == "completed";
           });
  });
  for (std::size_t rank = 0; rank < 2; ++rank) REQUIRE(sums[rank]->right(fleet[rank]));
}

TEMPLATE_TEST_CASE("H2: one device may be asked for 10,000 things before the others are touched", "", COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 2);
  TestType fleet(2);
  constexpr std::size_t collectives = 500;
  const CommunicationId all(fleet.devices());
  std::vector<Sum> sums[2];
  const Handle other = fleet[0].empty(64);
  for (std::size_t i = 0; i < collectives; ++i) {
    fleet[0].ensure_init_collective(all);
    sums[0].emplace_back(fleet[0], all, 8);  // three submits
    for (int write = 0; write < 17; ++write) fleet[0].write(other, Bytes::zeroed(64));
  }
  for (std::size_t i = 0; i < collectives; ++i) sums[1].emplace_back(fleet[1], all, 8);
  fleet.for_each([&](std::size_t rank, auto& client) {
    settle(client);
    REQUIRE(std::ranges::all_of(sums[rank], [&](const Sum& sum) { return sum.right(client); }));
  });
}

TEMPLATE_TEST_CASE("H3: a device may be waited for between the calls of two ranks by one thread", "", COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 2);
  TestType fleet(2);
  const CommunicationId all(fleet.devices());
  const Handle other = to_device(fleet[0], numbers_of(7, 10));
  auto apart = fleet[0];  // whose sync does not wait for the collectives of the first stream (L15)
  apart.set_stream(StreamId::allocate());
  const auto wait_for_device_0 = [&] {
    REQUIRE(fleet[0].read_one(other).template to_vector<std::int32_t>() == numbers_of(7, 10));
    fleet[0].flush();
    get_soon(apart.sync());
  };
  fleet[0].ensure_init_collective(all);
  wait_for_device_0();
  fleet[1].ensure_init_collective(all);
  wait_for_device_0();
  for (int round = 0; round < 10; ++round) {
    const Sum first(fleet[0], all, 100);
    wait_for_device_0();
    const Sum second(fleet[1], all, 100);
    REQUIRE(first.right(fleet[0]));
    REQUIRE(second.right(fleet[1]));
  }
}

TEMPLATE_TEST_CASE("H6: tasks of two devices may ask each other's devices for a collective", "", COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 2);
  TestType fleet(2);
  constexpr std::size_t rounds = 100;
  std::vector<std::optional<Sum>> sums[2] = {std::vector<std::optional<Sum>>(rounds),
                                             std::vector<std::optional<Sum>>(rounds)};
  for (std::size_t round = 0; round < rounds; ++round)
    for (std::size_t rank = 0; rank < 2; ++rank)
      fleet[1 - rank].device_handle().submit([&client = fleet[rank], &sum = sums[rank][round], &fleet](auto&) {
        sum.emplace(client, fleet.devices(), 10);
      });
  fleet.for_each([](std::size_t, auto& client) { client.device_handle().submit_blocking([](auto&) {}); });
  for (std::size_t round = 0; round < rounds; ++round)
    fleet.for_each([&](std::size_t rank, auto& client) { REQUIRE(sums[rank][round]->right(client)); });
}

TEMPLATE_TEST_CASE("H7: devices may be held exclusively around a collective, and its result awaited there", "",
                   COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 2);
  TestType fleet(2);
  const CommunicationId all(fleet.devices());
  SECTION("each by a thread of its own") {
    std::atomic<int> right{0};
    in_parallel(2, [&](std::size_t rank) {
      for (int round = 0; round < 20; ++round)
        fleet[rank].exclusive([&] {
          const Sum sum(fleet[rank], all, 100);
          fleet[rank].sync_collective();
          if (sum.right(fleet[rank])) ++right;
        });
    });
    REQUIRE(right == 40);
  }
  SECTION("one, by the thread that asks for all") {
    fleet[0].exclusive([&] {
      const Sum first(fleet[0], all, 100);
      const Sum second(fleet[1], all, 100);
      REQUIRE(second.right(fleet[1]));
      REQUIRE(first.right(fleet[0]));
    });
  }
}

TEMPLATE_TEST_CASE("H7 L10: a rank that waits behind whoever waits for it is found by the deadline", "", COX_FLEETS) {
  const CollectiveTimeout timeout(std::chrono::milliseconds(50));
  COX_REQUIRE_FLEET(TestType, 2);
  TestType fleet(2);
  const CommunicationId all(fleet.devices());
  std::vector<Failure> failures;
  fleet[0].exclusive([&] {
    fleet[1].exclusive([&] {
      const Sum first(fleet[0], all, 100);  // behind the outer closure, which waits for the inner one
      const Sum second(fleet[1], all, 100);
      failures = failures_of(fleet[1]);
    });
  });
  REQUIRE(kinds_of(failures) == std::vector{Kind::Timeout});
  REQUIRE(mentions(failures[0].what, {fleet.devices()[0].to_string() + " is missing", "in task"}));
  REQUIRE(kinds_of(failures_of(fleet[0])) == std::vector{Kind::Timeout});
}

namespace {

/// A service whose constructor opens all devices of its type, and a communicator of them, and sums up for its own.
template <class Client>
struct Trainer {
  explicit Trainer(DeviceId device) {
    std::vector<DeviceId> devices;
    for (std::uint16_t index = 0; index < 2; ++index) {
      devices.push_back({.type = device.type, .index = index});
      clients.push_back(Client::load(devices.back()));
    }
    clients[device.index].ensure_init_collective(devices);
    sum.emplace(clients[device.index], devices, 100);
  }

  std::vector<Client> clients;
  std::optional<Sum> sum;
};

/// Of two constructors that wait for each other's devices one is refused, and may try again.
template <class Service>
DeviceHandle<Service> opened(DeviceId device) {
  for (;;) {
    try {
      return DeviceHandle<Service>::get(device);
    } catch (const CallError& error) {
      if (error.kind() != CallError::Kind::WouldDeadlock) throw;
    }
  }
}

}  // namespace

TEMPLATE_TEST_CASE("H8: constructors of services may open devices and communicators, of each other too", "",
                   COX_FLEETS) {
  using Service = Trainer<typename TestType::Client>;
  COX_REQUIRE_FLEET(TestType, 2);
  TestType fleet(2);
  const std::vector<DeviceId> devices = fleet.devices();
  SECTION("opened already") {}
  SECTION("opened by the constructors") { shutdown_all(); }
  std::atomic<int> right{0};
  in_parallel(2, [&](std::size_t rank) {
    const auto service = opened<Service>(devices[rank]);
    // Its submits are behind the constructor, and this is behind them.
    const auto [client, sum] =
        service.submit_blocking([rank](Service& trainer) { return std::pair(trainer.clients[rank], *trainer.sum); });
    client.device_handle().submit_blocking([](auto&) {});
    if (sum.right(client)) ++right;
  });
  REQUIRE(right == 2);
}
