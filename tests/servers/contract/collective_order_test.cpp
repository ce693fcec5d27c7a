// H5: communicators that overlap, used in different orders by different threads (seed-semantics 3.10).

#include <coxswain/tests/servers/contract/fleet.hpp>
#include <coxswain/tests/servers/contract/ranks.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <vector>

using namespace cox;
using namespace cox::test;

namespace {

/// {0,1}, {1,2} and {2,0}: communicator c has devices c and c + 1.
std::array<CommunicationId, 3> ring_of(const std::vector<DeviceId>& devices) {
  return {CommunicationId{devices[0], devices[1]}, CommunicationId{devices[1], devices[2]},
          CommunicationId{devices[2], devices[0]}};
}

bool takes_part(std::size_t device, std::size_t communicator) {
  return device == communicator || device == (communicator + 1) % 3;
}

/// round(device, n) for 200 rounds, each device on a thread of its own. Whether all of them were right.
template <class Fleet, class Round>
bool all_right(Fleet& fleet, const Round& round) {
  std::array<bool, 3> right{};
  in_parallel(3, [&](std::size_t device) {
    bool all = true;
    for (std::size_t n = 0; n < 200; ++n) all = round(device, n) && all;
    settle(fleet[device]);
    right[device] = all;
  });
  return right == std::array{true, true, true};
}

}  // namespace

TEMPLATE_TEST_CASE("H5: overlapping communicators may be opened and used in rotated order, each rank in its own", "",
                   COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 3);
  TestType fleet(3);
  const auto ring = ring_of(fleet.devices());
  REQUIRE(all_right(fleet, [&](std::size_t device, std::size_t round) {
    bool all = true;
    std::vector<Sum> sums;
    for (const std::size_t communicator : {device, (device + 2) % 3}) {  // the other one first than its neighbours
      fleet[device].ensure_init_collective(ring[communicator]);
      sums.emplace_back(fleet[device], ring[communicator], 16);
    }
    if (round % 20 != 0) return true;
    for (const Sum& sum : sums) all = all && sum.right(fleet[device]);
    return all;
  }));
}

TEMPLATE_TEST_CASE("H5: streams may wait for one communicator before they use another, in one order for all", "",
                   COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 3);
  TestType fleet(3);
  const auto ring = ring_of(fleet.devices());
  REQUIRE(all_right(fleet, [&](std::size_t device, std::size_t round) {
    bool all = true;
    for (std::size_t i = 0; i < 3; ++i) {  // the order rotates with the rounds
      const std::size_t communicator = (round + i) % 3;
      if (!takes_part(device, communicator)) continue;
      const Sum sum(fleet[device], ring[communicator], 16);
      fleet[device].sync_collective();
      if (round % 20 == 0) all = all && sum.right(fleet[device]);
    }
    return all;
  }));
}

TEMPLATE_TEST_CASE("H5 L10: streams that wait in a ring are told, and the communicators serve on", "", COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 3);
  TestType fleet(3);
  const auto ring = ring_of(fleet.devices());
  std::array<std::vector<Failure>, 3> failures;
  for (int round = 0; round < 20; ++round) {
    in_parallel(3, [&](std::size_t device) {
      std::vector<Sum> sums;
      for (const std::size_t communicator : {device, (device + 2) % 3}) {
        sums.emplace_back(fleet[device], ring[communicator], 16);
        fleet[device].sync_collective();
      }
      failures[device] = failures_of(fleet[device]);
    });
    std::size_t told = 0;
    for (const auto& of_device : failures) {
      told += of_device.size();
      for (const Failure& failure : of_device) REQUIRE(failure.kind == Kind::WouldDeadlock);
    }
    REQUIRE(told == 2);  // both ranks of the one that would have closed the ring
  }
  for (std::size_t communicator = 0; communicator < 3; ++communicator) {
    auto& first = fleet[communicator];
    auto& second = fleet[(communicator + 1) % 3];
    const Sum left(first, ring[communicator], 16);
    const Sum right(second, ring[communicator], 16);
    REQUIRE((left.right(first) && right.right(second)));
  }
}

TEMPLATE_TEST_CASE("H5 L10: threads that wait in a ring for communicators end by the deadline", "", COX_FLEETS) {
  const CollectiveTimeout timeout(std::chrono::milliseconds(100));
  COX_REQUIRE_FLEET(TestType, 3);
  TestType fleet(3);
  const auto ring = ring_of(fleet.devices());
  std::array<std::vector<Failure>, 3> failures;
  in_parallel(3, [&](std::size_t device) {
    const Sum first(fleet[device], ring[device], 16);
    failures[device] = failures_of(fleet[device]);  // waits for the next device, which waits for the one after it
    if (!failures[device].empty()) return;
    const Sum second(fleet[device], ring[(device + 2) % 3], 16);
    failures[device] = failures_of(fleet[device]);
  });
  std::size_t told = 0;
  for (const auto& of_device : failures)
    for (const Failure& failure : of_device) {
      REQUIRE(failure.kind == Kind::Timeout);
      ++told;
    }
  REQUIRE(told >= 2);
}

// It ends behind what it was to wait for, and the next one on that device behind it: not before that in the one order.
TEMPLATE_TEST_CASE("H5: what comes behind a refused operation is not released before what that waits for", "",
                   COX_FLEETS) {
  const CollectiveTimeout timeout(std::chrono::seconds(5));
  COX_REQUIRE_FLEET(TestType, 3);
  TestType fleet(3);
  const auto& devices = fleet.devices();
  constexpr std::size_t count = 100;
  constexpr auto type = ElementType::I32;
  std::vector<Handle> data;
  fleet.for_each([&](std::size_t rank, auto& client) { data.push_back(to_device(client, numbers_of(rank, count))); });
  const auto sum = [&](const auto& client, std::size_t rank, std::size_t with) {
    client.all_reduce(data[rank], data[rank], type, {devices[rank], devices[with]});
  };
  auto apart = fleet[0];  // from the stream that has failed
  apart.set_stream(StreamId::allocate());
  sum(fleet[0], 0, 1);  // which the other has not come to
  fleet[0].receive(data[0], type, devices[1]);
  const Handle unsent = fleet[1].empty(count * sizeof(std::int32_t));
  fleet[1].send(unsent, ElementType::F32, devices[0]);
  REQUIRE(kinds_of(failures_of(fleet[1])) == std::vector{Kind::Mismatch});
  apart.accept(data[0]);
  sum(apart, 0, 2);
  sum(fleet[2], 2, 0);
  fleet.for_each([](std::size_t, auto& client) { client.device_handle().submit_blocking([](auto&) {}); });
  sum(fleet[1], 1, 0);
  Numbers of_two(count);
  Numbers of_all(count);
  for (std::size_t i = 0; i < count; ++i) {
    of_two[i] = numbers_of(0, count)[i] + numbers_of(1, count)[i];
    of_all[i] = of_two[i] + numbers_of(2, count)[i];
  }
  REQUIRE(read_soon(fleet[1], data[1]) == of_two);
  REQUIRE(read_soon(fleet[2], data[2]) == of_all);
  REQUIRE(kinds_of(failures_of(fleet[0])) == std::vector{Kind::Mismatch});
  REQUIRE(read_soon(apart, data[0]) == of_all);
}
