// H9: shutdown while collectives are pending (seed-semantics 3.10): bounded, typed errors, and all can be opened again.

#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/servers/contract/fleet.hpp>
#include <coxswain/tests/servers/contract/ranks.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/device_handle/base/call_error.hpp>
#include <coxswain/device_handle/base/find_cause.hpp>
#include <coxswain/runtime/error/server_error.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <exception>
#include <future>
#include <optional>
#include <source_location>
#include <stdexcept>
#include <string>
#include <thread>
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

std::exception_ptr thrown_by(Future<void> future) {
  try {
    get_soon(std::move(future));
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

template <class Fleet>
void require_service(Fleet& fleet) {
  std::vector<Sum> sums;
  fleet.for_each([&](std::size_t, auto& client) { sums.emplace_back(client, fleet.devices(), 100); });
  fleet.for_each([&](std::size_t rank, auto& client) { REQUIRE(sums[rank].right(client)); });
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

// A communicator that one of its ranks has left ends for the others with what that rank has asked for, not before.
TEMPLATE_TEST_CASE("H9: what a device has asked for before its shutdown is done, whatever else is opened meanwhile", "",
                   COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 3);
  TestType fleet(3);
  const CommunicationId all(fleet.devices());
  const CommunicationId others{fleet.devices()[1], fleet.devices()[2]};
  require_service(fleet);  // what has to be opened is
  const Sum of_leaver(fleet[0], all, 100);
  fleet[0].device_handle().submit_blocking([](auto&) {});  // it has asked
  std::promise<void> left;
  fleet[2].device_handle().submit([held = left.get_future()](auto&) { held.wait(); });
  const Sum between[] = {Sum(fleet[1], others, 100), Sum(fleet[2], others, 100)};
  const Sum last[] = {Sum(fleet[1], all, 100), Sum(fleet[2], all, 100)};
  auto leaving = std::async(std::launch::async, [device = fleet.devices()[0]] { return shutdown(device); });
  const auto begin = Clock::now();
  while (!kind_of<CollectiveError>([&] { fleet[1].ensure_init_collective(all); }))
    REQUIRE(Clock::now() - begin < bound);
  left.set_value();
  for (std::size_t i = 0; i < 2; ++i) {
    CHECK(between[i].right(fleet[i + 1]));
    CHECK(last[i].right(fleet[i + 1]));
  }
  CHECK(leaving.get() == ShutdownOutcome::Drained);
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
  fleet.for_each([&](std::size_t rank, auto&) { fleet.reopen(rank); });
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
  fleet.for_each([&](std::size_t rank, auto&) { fleet.reopen(rank); });
  require_service(fleet);
}

// The other ranks' replays were refused with the shutdown, so none of them would meet this one.
TEMPLATE_TEST_CASE("L16: a replay called before a device was shut down and opened again is refused at once", "",
                   COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 2);
  const CollectiveTimeout timeout(std::chrono::seconds(10));
  TestType fleet(2);
  auto& client = fleet[0];
  const Handle numbers = to_device(client, numbers_of(0, 100));
  const Handle behind = to_device(client, numbers_of(1, 100));
  client.graph_prepare();
  client.graph_start_capture();
  client.all_reduce(numbers, numbers, ElementType::I32, fleet.devices());
  const auto line = std::source_location::current().line() - 1;
  launch(client, TestType::Backend::fill(behind, 7));
  const auto graph = client.graph_stop_capture();
  std::promise<void> opened;
  client.device_handle().submit([held = opened.get_future()](auto&) { held.wait(); });
  graph.replay();
  fleet.reopen(1);
  opened.set_value();
  const auto begin = Clock::now();
  const std::vector<Failure> failures = failures_of(client);
  REQUIRE(kinds_of(failures) == std::vector{Kind::Aborted});
  REQUIRE(Clock::now() - begin < std::chrono::seconds(5));
  REQUIRE(failures.front().site.line() == line);
  REQUIRE(failures.front().what.find("opened again") != std::string::npos);
  REQUIRE(read_soon(client, behind) == Numbers(100, 7));  // a failed operation stops none behind it, in a graph neither
  require_service(fleet);                                 // it has taken no one's place in the new communicator
  const Sum other(fleet[1], fleet.devices(), 100);
  client.accept(numbers);
  graph.replay();
  settle(client);
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

namespace {

constexpr std::chrono::milliseconds at_once{100};

/// What `f` throws must be CollectiveError Aborted, at once, and name the device.
template <class F>
void require_refused_at_once(F f, DeviceId device) {
  const auto begin = Clock::now();
  CHECK(kind_of<CollectiveError>(f) == Kind::Aborted);
  CHECK(Clock::now() - begin < at_once);
  CHECK(mentions(message_of(f), {device.to_string() + " was shut down"}));
}

}  // namespace

TEMPLATE_TEST_CASE("L16: a device that was shut down is refused at once by all that would meet it", "", COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 3);
  TestType fleet(3);
  const auto& devices = fleet.devices();
  const Handle data = to_device(fleet[0], numbers_of(0, 100));
  fleet[0].ensure_init_collective(devices);
  shutdown(devices[2]);
  require_refused_at_once([&] { fleet[0].all_reduce(data, data, ElementType::I32, devices); }, devices[2]);
  require_refused_at_once([&] { fleet[1].ensure_init_collective(devices); }, devices[2]);
  require_refused_at_once([&] { fleet[0].barrier({devices[0], devices[2]}); }, devices[2]);
  require_refused_at_once([&] { fleet[0].send(data, ElementType::I32, devices[2]); }, devices[2]);
  require_refused_at_once([&] { fleet[0].receive(data, ElementType::I32, devices[2]); }, devices[2]);
  const CommunicationId others{devices[0], devices[1]};
  const Sum first(fleet[0], others, 100);
  const Sum second(fleet[1], others, 100);
  CHECK((first.right(fleet[0]) && second.right(fleet[1])));
  fleet.for_each([](std::size_t rank, auto& client) {
    if (rank != 2) settle(client);
  });
  fleet.reopen(2);
  require_service(fleet);
}

namespace {

/// Shuts a device down on another thread while a task holds the device's thread; made when the device is closing.
class HeldShutdown {
 public:
  template <class Client, class Queued>
  HeldShutdown(const Client& client, const Queued& queued) {
    client.device_handle().submit([held = release_.get_future().share()](auto&) { held.wait(); });
    queued();
    ended_ = std::async(std::launch::async, [device = client.device_id()] { return shutdown(device); });
    while (kind_of<CallError>([&] { client.device_handle().submit([](auto&) {}); }) != CallError::Kind::Closed)
      std::this_thread::yield();
  }
  HeldShutdown(const HeldShutdown&) = delete;
  HeldShutdown& operator=(const HeldShutdown&) = delete;
  ~HeldShutdown() {
    if (ended_.valid()) static_cast<void>(end());
  }
  [[nodiscard]] ShutdownOutcome end() {
    release_.set_value();
    return ended_.get();
  }

 private:
  std::promise<void> release_;
  std::future<ShutdownOutcome> ended_;
};

}  // namespace

TEMPLATE_TEST_CASE("L16: a closing device that has nothing more for the others is refused at once", "", COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 2);
  const CollectiveTimeout timeout(std::chrono::seconds(10));
  TestType fleet(2);
  const CommunicationId all(fleet.devices());
  require_service(fleet);  // what has to be opened is
  Future<void> waiting = pending(fleet[0], all);
  fleet[0].device_handle().submit_blocking([](auto&) {});  // it has asked
  HeldShutdown closing(fleet[1], [] {});
  const auto begin = Clock::now();
  CHECK(kinds_of(std::move(waiting)) == std::vector(5, Kind::Aborted));
  CHECK(Clock::now() - begin < at_once);
  require_refused_at_once([&] { fleet[0].barrier(all); }, fleet.devices()[1]);
  CHECK(closing.end() == ShutdownOutcome::Drained);
  fleet.reopen(1);
  require_service(fleet);
}

TEMPLATE_TEST_CASE("L16: what a closing device still has for the others is done, and then it is refused", "",
                   COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 2);
  const CollectiveTimeout timeout(std::chrono::seconds(10));
  TestType fleet(2);
  const CommunicationId all(fleet.devices());
  const bool replayed = GENERATE(false, true);
  const bool opened = GENERATE(false, true);  // else NCCL's communicator is made meanwhile
  CAPTURE(replayed, opened);
  if (opened) require_service(fleet);
  const Handle memory = to_device(fleet[1], numbers_of(1, 100));
  fleet[1].graph_prepare();
  fleet[1].graph_start_capture();
  fleet[1].all_reduce(memory, memory, ElementType::I32, all);
  const auto graph = fleet[1].graph_stop_capture();
  std::optional<Sum> its;
  HeldShutdown closing(fleet[1], [&] {
    if (replayed)
      graph.replay();
    else
      its.emplace(fleet[1], all, 100);
  });
  const Sum mine(fleet[0], all, 100);
  auto on_other_stream = fleet[0];
  on_other_stream.set_stream(StreamId::allocate());
  Future<void> more = pending(on_other_stream, all);
  CHECK(closing.end() == ShutdownOutcome::Drained);
  CHECK(mine.right(fleet[0]));
  CHECK(kinds_of(std::move(more)) == std::vector(5, Kind::Aborted));
  require_refused_at_once([&] { fleet[0].barrier(all); }, fleet.devices()[1]);
}

TEST_CASE("A server that is refused, since the device has one, takes no leave for that one") {
  COX_REQUIRE_FLEET(HostFleet, 2);
  HostFleet fleet(2);
  const Sum waiting(fleet[0], fleet.devices(), 100);
  const DeviceId other = fleet.devices()[1];
  CHECK(kind_of<CallError>([&] { static_cast<void>(HostClient::init(other, HostServer(other))); }) ==
        CallError::Kind::AlreadyRegistered);
  const Sum late(fleet[1], fleet.devices(), 100);
  CHECK((waiting.right(fleet[0]) && late.right(fleet[1])));
}

TEMPLATE_TEST_CASE("L16: a graph that meets a device which was shut down fails at its replay", "", COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 2);
  TestType fleet(2);
  const auto& devices = fleet.devices();
  const Handle data = to_device(fleet[0], numbers_of(0, 100));
  fleet[0].graph_prepare();
  fleet[0].graph_start_capture();
  fleet[0].all_reduce(data, data, ElementType::I32, devices);
  auto graph = fleet[0].graph_stop_capture();
  shutdown(devices[1]);
  const auto begin = Clock::now();
  graph.replay();
  CHECK(kinds_of(failures_of(fleet[0])) == std::vector{Kind::Aborted});
  CHECK(Clock::now() - begin < at_once);
}

TEMPLATE_TEST_CASE("L16: ranks that wait are told within 100 ms that one has given up, and why", "", COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 3);
  TestType fleet(3);
  const CommunicationId all(fleet.devices());
  fleet.for_each([&](std::size_t, auto& client) { client.ensure_init_collective(all); });
  require_service(fleet);  // what has to be opened is
  Future<void> waiting[] = {pending(fleet[0], all), pending(fleet[1], all)};
  fleet.for_each(
      [](std::size_t, auto& client) { client.device_handle().submit_blocking([](auto&) {}); });  // all have asked
  const auto begin = Clock::now();
  fleet[2].abort_collective(all, std::make_exception_ptr(std::runtime_error("no more data")));
  for (Future<void>& each : waiting) {
    try {
      get_soon(std::move(each));
      FAIL("a rank has given up, and nothing failed");
    } catch (const ServerError& unhealthy) {
      CHECK(Clock::now() - begin < at_once);
      CHECK(unhealthy.errors().size() == 5);
      CHECK(kind_in<CollectiveError>(unhealthy.cause()) == Kind::Aborted);
      const auto cause = [&] {
        try {
          std::rethrow_exception(unhealthy.cause());
        } catch (const CollectiveError& aborted) {
          return aborted.cause();
        }
      }();
      CHECK_THROWS_WITH(std::rethrow_exception(cause), "no more data");
    }
  }
  // What comes is refused as well, also of who gave up; and a second abort changes nothing.
  fleet[0].abort_collective(all, std::make_exception_ptr(std::runtime_error("me, too")));
  const Sum late(fleet[2], all, 100);
  const auto failures = failures_of(fleet[2]);
  CHECK(kinds_of(failures) == std::vector{Kind::Aborted});
  CHECK(mentions(failures[0].what, {"no more data"}));
  fleet[1].ensure_init_collective(all);
  require_service(fleet);
}

TEMPLATE_TEST_CASE("An aborted operation, a refused one and one of a graph name the line of their own call", "",
                   COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 2);
  TestType fleet(2);
  const CommunicationId both(fleet.devices());
  const Handle data = to_device(fleet[0], numbers_of(0, 100));
  const auto line_of = [&](const std::exception_ptr& failure) {
    const auto* const aborted = find_cause<CollectiveError>(failure, Kind::Aborted);
    REQUIRE(aborted != nullptr);
    CHECK(std::string(aborted->site().file_name()).ends_with("collective_shutdown_test.cpp"));
    return aborted->site().line();
  };
  const auto here = [](std::source_location site = std::source_location::current()) { return site.line(); };
  fleet[0].graph_prepare();
  fleet[0].graph_start_capture();
  const auto captured = here() + 1;
  fleet[0].all_reduce(data, data, ElementType::I32, both);
  auto graph = fleet[0].graph_stop_capture();

  const auto waiting = here() + 1;
  fleet[0].all_reduce(data, data, ElementType::I32, both);
  Future<void> future = fleet[0].sync();
  fleet[0].device_handle().submit_blocking([](auto&) {});
  fleet[1].abort_collective(both, std::make_exception_ptr(std::runtime_error("no more data")));
  CHECK(line_of(thrown_by(std::move(future))) == waiting);

  const Handle other = to_device(fleet[1], numbers_of(1, 100));
  const auto late = here() + 1;
  fleet[1].all_reduce(other, other, ElementType::I32, both);
  CHECK(line_of(thrown_by(fleet[1].sync())) == late);

  shutdown(fleet.devices()[1]);
  graph.replay();
  CHECK(line_of(thrown_by(fleet[0].sync())) == captured);
}

TEMPLATE_TEST_CASE("L16: a transfer that waits is told that the communicator was given up", "", COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 2);
  TestType fleet(2);
  const CommunicationId both(fleet.devices());
  const Handle data = to_device(fleet[0], numbers_of(0, 100));
  fleet[0].send(data, ElementType::I32, fleet.devices()[1]);
  fleet[0].device_handle().submit_blocking([](auto&) {});
  fleet[1].abort_collective(both, std::make_exception_ptr(std::runtime_error("no more data")));
  const auto failures = failures_of(fleet[0]);
  CHECK(kinds_of(failures) == std::vector{Kind::Aborted});
  CHECK(mentions(failures[0].what, {"no more data"}));
  CHECK(kind_of<CollectiveError>([&] { fleet[0].abort_collective({fleet.devices()[1]}, nullptr); }) ==
        Kind::Validation);
}
