// H9: shutdown while collectives are pending (seed-semantics 3.10): bounded, typed errors, and all can be opened again.

#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/servers/contract/fleet.hpp>
#include <coxswain/tests/servers/contract/ranks.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/device_handle/call_error.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <exception>
#include <future>
#include <utility>
#include <vector>

using namespace cox;
using namespace cox::test;

namespace {

constexpr std::chrono::seconds bound{15};

/// A future that the rank's part in a pending collective keeps from being ready.
template <class Client>
Future<void> pending(const Client& client, const CommunicationId& devices, int operations = 5) {
  for (int i = 0; i < operations; ++i) static_cast<void>(Sum(client, devices, 100));
  client.sync_collective();
  return client.sync();
}

/// What the future's CollectiveErrors are.
std::vector<Kind> kinds_of(Future<void> future) {
  std::vector<Kind> kinds;
  try {
    get_soon(std::move(future));
  } catch (const ServerError& unhealthy) {
    for (const std::exception_ptr& error : unhealthy.errors())
      if (const auto kind = kind_of<CollectiveError>([&] { std::rethrow_exception(error); })) kinds.push_back(*kind);
  }
  return kinds;
}

template <class Fleet>
void require_service(Fleet& fleet) {
  std::vector<Sum> sums;
  fleet.each([&](std::size_t, auto& client) { sums.emplace_back(client, fleet.devices(), 100); });
  fleet.each([&](std::size_t rank, auto& client) { REQUIRE(sums[rank].right(client)); });
}

}  // namespace

TEMPLATE_TEST_CASE("H9: a device is shut down while it waits for another, which is told later", "", COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 2);
  TestType fleet(2);
  Future<void> waiting = pending(fleet[0], fleet.devices());
  const auto begin = Clock::now();
  REQUIRE(shutdown(fleet.devices()[0]) == ShutdownOutcome::Drained);
  REQUIRE(Clock::now() - begin < bound);
  REQUIRE(kinds_of(std::move(waiting)) == std::vector(5, Kind::Aborted));
  fleet.reopen(0);
  require_service(fleet);
}

TEMPLATE_TEST_CASE("H9: a device is shut down for which another one waits", "", COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 2);
  TestType fleet(2);
  Future<void> waiting = pending(fleet[0], fleet.devices());
  REQUIRE(shutdown(fleet.devices()[1]) == ShutdownOutcome::Drained);
  REQUIRE(kinds_of(std::move(waiting)) == std::vector(5, Kind::Aborted));
  REQUIRE(kind_of<CallError>([&] { fleet[1].barrier(fleet.devices()); }) == CallError::Kind::Closed);
  fleet.reopen(1);
  require_service(fleet);
}

TEMPLATE_TEST_CASE("H9: what all ranks have asked for is done before a shutdown", "", COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 2);
  TestType fleet(2);
  Future<void> futures[] = {pending(fleet[0], fleet.devices(), 100), pending(fleet[1], fleet.devices(), 100)};
  in_parallel(2, [&](std::size_t rank) { shutdown(fleet.devices()[rank]); });
  for (Future<void>& future : futures) get_soon(std::move(future));
}

TEMPLATE_TEST_CASE("H9: all devices are shut down at once while they wait for each other", "", COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 4);
  TestType fleet(4);
  const auto& devices = fleet.devices();
  std::vector<Future<void>> waiting;
  waiting.push_back(pending(fleet[0], CommunicationId{devices[0], devices[1]}));
  waiting.push_back(pending(fleet[1], CommunicationId{devices[1], devices[2]}));
  waiting.push_back(pending(fleet[2], CommunicationId{devices[2], devices[3]}));
  waiting.push_back(pending(fleet[3], CommunicationId{devices[3], devices[0]}));
  const auto begin = Clock::now();
  REQUIRE(shutdown_all() == ShutdownOutcome::Drained);
  REQUIRE(Clock::now() - begin < bound);
  for (Future<void>& future : waiting) REQUIRE(kinds_of(std::move(future)) == std::vector(5, Kind::Aborted));
  fleet.each([&](std::size_t rank, auto&) { fleet.reopen(rank); });
  require_service(fleet);
}

TEMPLATE_TEST_CASE("H9: threads shut each other's devices down while they wait for each other", "", COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 2);
  TestType fleet(2);
  const auto& devices = fleet.devices();
  SECTION("client threads") {
    Future<void> ahead = pending(fleet[0], devices, 5);
    Future<void> behind = pending(fleet[1], devices, 3);
    const auto begin = Clock::now();
    in_parallel(2, [&](std::size_t rank) { shutdown(devices[1 - rank]); });
    REQUIRE(Clock::now() - begin < bound);
    REQUIRE(kinds_of(std::move(ahead)) == std::vector(2, Kind::Aborted));
    REQUIRE(kinds_of(std::move(behind)).empty());
  }
  SECTION("device threads, of which one at least is refused") {
    std::atomic<int> refused{0};
    Future<void> waiting = pending(fleet[0], devices);
    const auto begin = Clock::now();
    in_parallel(2, [&](std::size_t rank) {
      try {
        fleet[rank].device_handle().submit_blocking([&](auto&) { shutdown(devices[1 - rank]); });
      } catch (const CallError& error) {
        if (error.kind() == CallError::Kind::WouldDeadlock || error.kind() == CallError::Kind::Closed) ++refused;
      }
    });
    REQUIRE(Clock::now() - begin < bound);
    REQUIRE(refused >= 1);
    shutdown_all();
    REQUIRE(kinds_of(std::move(waiting)) == std::vector(5, Kind::Aborted));
  }
  fleet.each([&](std::size_t rank, auto&) { fleet.reopen(rank); });
  require_service(fleet);
}

TEMPLATE_TEST_CASE("A device that is opened again has new communicators, the others keep theirs", "", COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 3);
  TestType fleet(3);
  const auto& devices = fleet.devices();
  const CommunicationId stays{devices[0], devices[1]};
  const Sum early(fleet[0], stays, 100);  // waits over all of it
  const Sum lost(fleet[0], CommunicationId{devices[0], devices[2]}, 100);
  fleet[0].device_handle().submit_blocking([](auto&) {});  // it has asked
  fleet.reopen(2);
  const Sum late(fleet[1], stays, 100);
  REQUIRE(late.right(fleet[1]));
  REQUIRE(read_soon(fleet[1], late.result) == sum_of(2, 100));
  const auto failures = failures_of(fleet[0]);
  REQUIRE(kinds_of(failures) == std::vector{Kind::Aborted});
  REQUIRE(mentions(failures[0].what, {devices[2].to_string() + " was shut down"}));
  REQUIRE(early.right(fleet[0]));
  require_service(fleet);
}

TEMPLATE_TEST_CASE("A rank that asks after another one's device was shut down is told so", "", COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 2);
  TestType fleet(2);
  const auto& devices = fleet.devices();
  fleet[0].ensure_init_collective(devices);
  // The closure knows the communicator from before, and comes to the device thread after.
  std::promise<void> closed;
  fleet[0].device_handle().submit([gate = closed.get_future().share()](auto&) { gate.wait(); });
  const Sum late(fleet[0], devices, 100);
  shutdown(devices[1]);
  closed.set_value();
  const auto failures = failures_of(fleet[0]);
  REQUIRE(kinds_of(failures) == std::vector{Kind::Aborted});
  REQUIRE(mentions(failures[0].what, {devices[1].to_string() + " was shut down"}));
}
