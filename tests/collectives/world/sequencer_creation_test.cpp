// Releases of the leader while a sequencer is frozen, and the creation of NCCL's communicators, which freezes it.
#include <coxswain/tests/collectives/sequencer_bench.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/collectives/sequencer/world_order.hpp>
#include <coxswain/device_handle/base/call_error.hpp>
#include <coxswain/runtime/communication/collective_error.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <future>
#include <latch>
#include <memory>
#include <thread>
#include <vector>

using namespace cox;
using namespace cox::test;
using namespace std::chrono_literals;

namespace {

/// Counts what the sequencer asks for.
struct Asked final : WorldOrder {
  void open(CommunicatorNumber, const SharedSequence& sequence, std::chrono::milliseconds) noexcept override {
    opened.push_back(sequence);
  }
  void ask(const CollectiveId& operation, const CollectiveRequests&, const CollectiveDependencies&) noexcept override {
    asked.push_back(operation);
  }
  void refuse(const CollectiveId&, const std::exception_ptr&) noexcept override {}
  void end(const CollectiveId&, const std::exception_ptr&) noexcept override { ++ended; }
  void completed(const CollectiveId&) noexcept override {}
  void close(CommunicatorNumber) noexcept override {}

  std::vector<SharedSequence> opened;
  std::vector<CollectiveId> asked;
  int ended = 0;
};

constexpr DeviceId world_device(std::uint16_t process) { return {.type = 0, .index = 0, .process = process}; }

/// The process 1 of a world of two processes with a device each.
struct World {
  Told creation;
  std::vector<Told> operations = std::vector<Told>(4);
  Asked order;
  Sequencer sequencer;
  CommunicatorNumber all;
  CommunicatorNumber creating;

  World() {
    sequencer.join_world(1, {world_device(1), world_device(2)}, order, 8);
    all = sequencer.open(CommunicationId({world_device(1), world_device(2)}), 1h);
    creating = sequencer.open_creation(all, 1h);
  }
  void submit(CommunicatorNumber to, Told& told) {
    static_cast<void>(sequencer.submit(to, 0, {.requests = {of_count(1)}, .launch = told.launch()}));
  }
};

}  // namespace

TEST_CASE("The creation is a sequence of its own to the other processes") {
  World world;
  REQUIRE(world.order.opened.size() == 2);
  CHECK(world.order.opened[1].communicator == world.order.opened[0].communicator);
  CHECK(world.order.opened[1].transfer == TransferRanks::of_creation());
  world.sequencer.close(world.all);
  CHECK_THROWS_AS(world.sequencer.open_creation(world.all, 1h), CollectiveError);
  const CommunicatorNumber local = world.sequencer.open(CommunicationId({world_device(0)}), 1h);
  CHECK_THROWS_AS(world.sequencer.open_creation(local, 1h), CollectiveError);
}

TEST_CASE("Releases of the leader that follow that of a creation wait until it has ended") {
  World world;
  world.submit(world.creating, world.creation);
  for (Told& told : world.operations) world.submit(world.all, told);
  REQUIRE(world.order.asked.size() == 5);
  CHECK(world.sequencer.release({world.all, 1}));
  CHECK(world.operations[0].times() == 1);
  CHECK(world.sequencer.release({world.creating, 1}));
  CHECK(world.creation.times() == 1);
  CHECK(world.sequencer.release({world.all, 2}));
  CHECK(world.sequencer.release({world.all, 3}));
  CHECK(world.operations[1].times() == 0);
  world.sequencer.freeze();
  world.sequencer.thaw();
  CHECK(world.operations[1].times() == 0);
  world.sequencer.thaw();
  CHECK(world.operations[1].times() == 1);
  CHECK(world.operations[2].times() == 1);
  CHECK(world.operations[2].turns.back().order > world.operations[1].turns.back().order);
  CHECK(world.sequencer.release({world.all, 4}));
  CHECK(world.operations[3].times() == 1);
}

TEST_CASE("A creation among the kept releases keeps those after it") {
  World world;
  world.submit(world.creating, world.creation);
  for (Told& told : world.operations) world.submit(world.all, told);
  world.sequencer.freeze();
  CHECK(world.sequencer.release({world.all, 1}));
  CHECK(world.sequencer.release({world.creating, 1}));
  CHECK(world.sequencer.release({world.all, 2}));
  CHECK(world.operations[0].times() == 0);
  world.sequencer.thaw();
  CHECK(world.operations[0].times() == 1);
  CHECK(world.creation.times() == 1);
  CHECK(world.operations[1].times() == 0);
  world.sequencer.thaw();
  CHECK(world.operations[1].times() == 1);
}

TEST_CASE("A kept release of an operation that is lost meanwhile launches nothing") {
  World world;
  world.submit(world.all, world.operations[0]);
  world.sequencer.freeze();
  CHECK(world.sequencer.release({world.all, 1}));
  CHECK_FALSE(world.sequencer.release({world.all, 2}));  // was not asked for
  world.sequencer.lose_world(std::make_exception_ptr(
      CollectiveError(CollectiveError::Kind::WorldGone, "the world is over", std::source_location())));
  CHECK(world.operations[0].refusal() == CollectiveError::Kind::WorldGone);
  world.sequencer.thaw();
  CHECK(world.operations[0].times() == 1);
}

TEST_CASE(
    "An operation is not overdue while the leader has to release an earlier one of the communicator that it waits "
    "for") {
  Asked order;
  std::vector<Told> told(4);
  Sequencer sequencer;
  const DeviceId second{.type = 0, .index = 1, .process = 1};
  const std::vector<DeviceId> devices{world_device(1), second, world_device(2)};
  sequencer.join_world(1, devices, order, 8);
  const CommunicatorNumber all = sequencer.open(CommunicationId(devices), 1h);
  const CommunicatorNumber local = sequencer.open(CommunicationId({world_device(0)}), 1s);
  for (const std::size_t rank : {0U, 1U})
    static_cast<void>(sequencer.submit(all, rank, {.requests = {of_count(1)}, .launch = told[rank].launch()}));
  REQUIRE(order.asked.size() == 1);
  static_cast<void>(sequencer.submit(all, 0, {.requests = {of_count(1)}, .launch = told[2].launch()}));
  static_cast<void>(
      sequencer.submit(local, 0, {.requests = {of_count(1)}, .dependencies = {{all, 2}}, .launch = told[3].launch()}));
  sequencer.expire(std::chrono::steady_clock::now() + 10s);
  CHECK(told[3].times() == 0);
  CHECK(sequencer.release({all, 1}));
  sequencer.expire(std::chrono::steady_clock::now() + 10s);  // the leader has no deadline for it any more
  CHECK(told[3].refusal() == CollectiveError::Kind::Timeout);
}

TEST_CASE("A process that could not join a world may join it again") {
  Asked first;
  Asked second;
  Told told;
  Sequencer sequencer;
  const std::vector<DeviceId> devices{world_device(1), world_device(2)};
  sequencer.join_world(1, devices, first, 8);
  sequencer.lose_world(std::make_exception_ptr(
      CollectiveError(CollectiveError::Kind::WorldGone, "it was not accepted", std::source_location())));
  CHECK_THROWS_AS(sequencer.open(CommunicationId(devices), 1h), CollectiveError);
  sequencer.join_world(1, devices, second, 8);
  const CommunicatorNumber both = sequencer.open(CommunicationId(devices), 1h);
  static_cast<void>(sequencer.submit(both, 0, {.requests = {of_count(1)}, .launch = told.launch()}));
  CHECK(first.opened.empty());
  CHECK(second.asked.size() == 1);
  CHECK(sequencer.release({both, 1}));
  CHECK(told.times() == 1);
}

TEST_CASE("T1: a local operation that waits for a lost one is released when the sequencer is not frozen any more") {
  World world;
  const CommunicatorNumber local = world.sequencer.open(CommunicationId({world_device(0)}), 1h);
  world.submit(world.all, world.operations[0]);
  static_cast<void>(world.sequencer.submit(
      local, 0, {.requests = {of_count(1)}, .dependencies = {{world.all, 1}}, .launch = world.operations[1].launch()}));
  world.sequencer.freeze();
  const auto lost = std::make_exception_ptr(
      CollectiveError(CollectiveError::Kind::WorldGone, "the world is over", std::source_location()));
  SECTION("the world") { world.sequencer.lose_world(lost); }
  SECTION("the communicator") { world.sequencer.end(world.order.opened[0].communicator, {}, lost); }
  SECTION("the operation") { world.sequencer.refuse({world.all, 1}, lost); }
  CHECK(world.operations[0].refusal() == CollectiveError::Kind::WorldGone);
  CHECK(world.operations[1].times() == 0);
  world.sequencer.thaw();
  REQUIRE(world.operations[1].times() == 1);
  CHECK_FALSE(world.operations[1].refusal());
}

TEST_CASE("freeze() returns when a release that is passed on has been passed on") {
  World world;
  world.sequencer.set_launch_thread(world_device(0), [] {});
  std::latch launching(1);
  std::latch go_on(1);
  std::atomic<bool> launched = false;
  static_cast<void>(
      world.sequencer.submit(world.all, 0, {.requests = {of_count(1)}, .launch = launch_of([&](const LaunchGrant&) {
                                                                         launching.count_down();
                                                                         go_on.wait();
                                                                         launched = true;
                                                                       })}));
  std::atomic<bool> was_right = false;
  std::thread leader([&] { was_right = world.sequencer.release({world.all, 1}); });
  launching.wait();
  auto freezing = std::async(std::launch::async, [&] {
    world.sequencer.freeze();
    const bool had_launched = launched;
    world.sequencer.thaw();
    return had_launched;
  });
  CHECK(freezing.wait_for(50ms) == std::future_status::timeout);
  go_on.count_down();
  leader.join();
  CHECK(was_right);
  CHECK(freezing.get());
}

// The rank may hold operations back, for instance while a kernel is compiled.
TEST_CASE(
    "A launch thread is notified when another process breaks a communicator of its device, or the world is lost") {
  World world;
  int notified = 0;
  world.sequencer.set_launch_thread(device(0), [&] { ++notified; });
  const auto why = std::make_exception_ptr(CollectiveError(CollectiveError::Kind::ProcessGone, "gone", {}));
  SECTION("broken") { world.sequencer.end(world.order.opened.front().communicator, {}, why); }
  SECTION("lost") { world.sequencer.lose_world(why); }
  CHECK(notified == 1);
  world.sequencer.drain_launches(device(0));
  world.sequencer.set_launch_thread(device(0), {});
}

TEST_CASE("A process asks the leader for no more operations than that allows, nor than it allows itself") {
  const std::size_t of_leader = GENERATE(std::size_t{2}, std::size_t{3000});
  const std::size_t own = GENERATE(std::size_t{3}, std::size_t{5000}, std::size_t{8000});
  Asked order;
  const std::size_t most = std::min(own, std::max<std::size_t>(4096, 2 * of_leader));
  std::vector<Told> operations(most + 1);
  Sequencer sequencer({.max_ahead = own});
  sequencer.join_world(1, {world_device(1), world_device(2)}, order, of_leader);
  const CommunicatorNumber all = sequencer.open(CommunicationId({world_device(1), world_device(2)}), 1h);
  std::size_t submitted = 0;
  try {
    for (Told& told : operations) {
      sequencer.submit(all, 0, {.requests = {of_count(1)}, .launch = told.launch()});
      ++submitted;
    }
  } catch (const CallError& error) {
    CHECK(error.kind() == CallError::Kind::QueueFull);
  }
  CHECK(submitted == most);
}
