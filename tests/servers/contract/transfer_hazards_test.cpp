// H4: transfers that cross (seed-semantics 3.10).

#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/servers/contract/fleet.hpp>
#include <coxswain/tests/servers/contract/poison_contract.hpp>
#include <coxswain/tests/servers/contract/ranks.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/device_handle/base/call_error.hpp>
#include <coxswain/device_handle/service/device_thread_options.hpp>
#include <coxswain/runtime/error/server_error.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <future>
#include <vector>

using namespace cox;
using namespace cox::test;

namespace {

/// Each of two threads copies so many bytes to the other one's device, so many times, without waiting for the other.
template <class Fleet>
void cross(std::size_t bytes, std::size_t times) {
  Fleet fleet(2);
  constexpr std::size_t at_once = 3;  // what a thread keeps of the memory that it received
  std::array<bool, 2> right{};
  const auto numbers = [&](std::size_t rank) { return numbers_of(rank, bytes / sizeof(std::int32_t)); };
  in_parallel(2, [&](std::size_t rank) {
    auto& here = fleet[rank];
    auto& there = fleet[1 - rank];
    const Handle source = to_device(here, numbers(rank));
    std::vector<Handle> received(at_once);
    for (std::size_t i = 0; i < times; ++i) {
      received[i % at_once] = {};
      received[i % at_once] = here.to_client(source, there, ElementType::I32);
      if (i % at_once == 0) settle(here);
    }
    right[rank] = read_soon(there, received[(times - 1) % at_once]) == numbers(rank);
  });
  REQUIRE(right == std::array{true, true});
}

}  // namespace

TEMPLATE_TEST_CASE("H4: small transfers may cross", "", COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 2);
  cross<TestType>(4 << 10, 1000);
}

TEMPLATE_TEST_CASE("H4: transfers of 1 MB may cross", "", COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 2);
  cross<TestType>(1 << 20, 200);
}

TEMPLATE_TEST_CASE("H4: transfers of 64 MB may cross", "", COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 2);
  cross<TestType>(64 << 20, 10);
}

TEMPLATE_TEST_CASE("H4: transfers of 64 MB may cross 1,000 times", "[.long]", COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 2);
  cross<TestType>(64 << 20, 1000);
}

// The second transfer waits for sums that wait for the first; and a device sends in one order.
TEMPLATE_TEST_CASE("H5: a transfer does not get ahead of an earlier one that its own sums wait for", "", COX_FLEETS) {
  using Backend = typename TestType::Backend;
  const CollectiveTimeout timeout(std::chrono::seconds(5));
  COX_REQUIRE_FLEET(TestType, 2);
  TestType fleet(2);
  const auto& devices = fleet.devices();
  const auto on_new_stream = [&](std::size_t rank) {
    auto client = fleet[rank];
    client.set_stream(StreamId::allocate());
    return client;
  };
  const auto& first = fleet[0];
  const auto& second = fleet[1];
  const auto first_apart = on_new_stream(0);
  const auto second_apart = on_new_stream(1);
  constexpr std::size_t count = 100;
  const Handle early = to_device(first_apart, numbers_of(3, count));
  const Handle late = second_apart.empty(count * sizeof(std::int32_t));
  const Handle cubes = upload(second, {1, 1, 1});
  const Handle data[] = {to_device(first, numbers_of(0, count)), to_device(second, numbers_of(1, count))};
  const auto sum = [&] {
    fleet.for_each(
        [&](std::size_t rank, auto& client) { client.all_reduce(data[rank], data[rank], ElementType::I32, devices); });
  };
  const auto pass = [&] {
    fleet.for_each([](std::size_t, auto& client) { client.device_handle().submit_blocking([](auto&) {}); });
  };
  sum();  // all is made
  first_apart.send(early, ElementType::I32, devices[1]);
  second_apart.receive(late, ElementType::I32, devices[0]);
  fleet.for_each([](std::size_t, auto& client) { settle(client); });

  typename Backend::Gate gate(second);
  launch(second, gate.fill(cubes, 1));
  gate.wait_until_entered();
  // How many cubes, is known then: it has not been given to the device, nor has what comes behind it.
  launch(second, Backend::multiply_add(data[1], 0, 1).with_count(CubeCount::dynamic(cubes)));
  second.receive(data[1], ElementType::I32, devices[0]);
  first_apart.send(early, ElementType::I32, devices[1]);
  sum();
  sum();
  pass();
  first.send(data[0], ElementType::I32, devices[1]);
  second_apart.receive(late, ElementType::I32, devices[0]);
  pass();
  gate.open();

  Numbers expected(count);
  for (std::size_t i = 0; i < count; ++i) expected[i] = 2 * (sum_of(2, count)[i] + numbers_of(3, count)[i]);
  REQUIRE(read_soon(second_apart, late) == expected);
  fleet.for_each([&](std::size_t rank, auto& client) { REQUIRE(read_soon(client, data[rank]) == expected); });
}

// Neither gives anything to a stream that the next one could come behind.
TEMPLATE_TEST_CASE("What is behind a refused transfer or collective waits for what that one waited for", "",
                   COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 2);
  using Backend = typename TestType::Backend;
  enum class Refused { PoisonedTransfer, UnequalTransfer, UnequalCollective };
  const auto refused = GENERATE(Refused::PoisonedTransfer, Refused::UnequalTransfer, Refused::UnequalCollective);
  TestType fleet(2);
  const auto& devices = fleet.devices();
  const auto& sender = fleet[0];
  const auto& receiver = fleet[1];
  auto apart = receiver;
  apart.set_stream(StreamId::allocate());
  constexpr std::size_t count = 100;
  const Handle from = to_device(sender, numbers_of(0, count));
  const Handle poisoned = to_device(sender, numbers_of(0, count));
  const Handle shorter = to_device(sender, numbers_of(0, count / 2));
  const Handle own = to_device(apart, numbers_of(1, count));
  const Handle to = to_device(receiver, numbers_of(2, count));
  const bool reduces = refused == Refused::UnequalCollective;
  const auto move = [&](const Handle& source) {
    if (reduces) {
      sender.all_reduce(source, source, ElementType::I32, devices);
      apart.all_reduce(own, to, ElementType::I32, devices);
    } else {
      sender.send(source, ElementType::I32, devices[1]);
      apart.receive(to, ElementType::I32, devices[0]);
    }
  };
  move(to_device(sender, numbers_of(0, count)));  // all is made
  for (const auto& client : {sender, receiver, apart}) settle(client);

  typename Backend::Gate gate(receiver);
  launch(receiver, gate.fill(to, 7));
  gate.wait_until_entered();
  if (refused == Refused::PoisonedTransfer) launch(sender, Backend::fail_on(sender, poisoned));
  move(refused == Refused::PoisonedTransfer ? poisoned : shorter);
  move(from);
  auto end = sender.sync();
  static_cast<void>(end.wait_for(std::chrono::milliseconds(100)));  // as long as it would take without the kernel
  gate.open();
  REQUIRE_THROWS_AS(get_soon(std::move(end)), ServerError);
  REQUIRE(next_failure(apart) != nullptr);
  REQUIRE(read_soon(apart, to) == (reduces ? sum_of(2, count) : numbers_of(0, count)));
}

// The kernel is queued between two transfers of which the first has not been issued.
TEMPLATE_TEST_CASE("What is behind a refused transfer waits for work that was queued behind an earlier transfer", "",
                   COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 2);
  using Backend = typename TestType::Backend;
  TestType fleet(2);
  const auto& devices = fleet.devices();
  const auto& sender = fleet[0];
  const auto& receiver = fleet[1];
  auto apart = receiver;
  apart.set_stream(StreamId::allocate());
  constexpr std::size_t count = 100;
  const Handle from = to_device(sender, numbers_of(0, count));
  const Handle shorter = to_device(sender, numbers_of(0, count / 2));
  const Handle to = to_device(receiver, numbers_of(2, count));
  const Handle other = to_device(receiver, numbers_of(2, count));
  sender.send(from, ElementType::I32, devices[1]);  // all is made
  apart.receive(other, ElementType::I32, devices[0]);
  for (const auto& client : {sender, receiver, apart}) settle(client);

  typename Backend::Gate first(receiver);
  launch(receiver, first.fill(other, 7));
  first.wait_until_entered();
  typename Backend::Gate second(receiver);
  apart.receive(other, ElementType::I32, devices[0]);  // waits for the first kernel
  launch(receiver, second.fill(to, 7));
  apart.receive(to, ElementType::I32, devices[0]);  // is refused
  apart.receive(to, ElementType::I32, devices[0]);
  for (const Handle& sent : {from, shorter, from}) sender.send(sent, ElementType::I32, devices[1]);
  auto end = sender.sync();
  first.open();
  static_cast<void>(
      end.wait_for(std::chrono::milliseconds(100)));  // as long as it would take without the second kernel
  second.open();
  REQUIRE_THROWS_AS(get_soon(std::move(end)), ServerError);
  REQUIRE(next_failure(apart) != nullptr);
  REQUIRE(read_soon(apart, to) == numbers_of(0, count));
  REQUIRE(read_soon(apart, other) == numbers_of(0, count));
}

TEMPLATE_TEST_CASE("A refused transfer poisons memory behind work that it waited for, and before the next one", "",
                   COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 2);
  using Backend = typename TestType::Backend;
  TestType fleet(2);
  const auto& devices = fleet.devices();
  const auto& sender = fleet[0];
  const auto& receiver = fleet[1];
  constexpr std::size_t count = 100;
  const Handle from = to_device(sender, numbers_of(0, count));
  const Handle shorter = to_device(sender, numbers_of(0, count / 2));
  const Handle early = to_device(receiver, numbers_of(2, count));
  const Handle to = to_device(receiver, numbers_of(2, count));
  sender.send(from, ElementType::I32, devices[1]);  // all is made
  receiver.receive(early, ElementType::I32, devices[0]);
  for (const auto& client : {sender, receiver}) settle(client);
  for (int i = 0; i < 20; ++i) {
    receiver.receive(early, ElementType::I32, devices[0]);
    launch(receiver, Backend::copy(early, to));          // has not been issued before that has
    receiver.receive(to, ElementType::I32, devices[0]);  // is refused
    receiver.receive(to, ElementType::I32, devices[0]);
    reach(receiver);
    for (const Handle& sent : {from, shorter, from}) sender.send(sent, ElementType::I32, devices[1]);
    REQUIRE(next_failure(sender) != nullptr);
    REQUIRE(next_failure(receiver) != nullptr);
    REQUIRE(read_soon(receiver, to) == numbers_of(0, count));
  }
}

TEMPLATE_TEST_CASE("A refused collective does not poison what an earlier one has still to read", "", COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 2);
  TestType fleet(2);
  const auto& devices = fleet.devices();
  constexpr std::size_t count = 100;
  std::vector<Handle> sources;
  std::vector<Handle> sums;
  fleet.for_each([&](std::size_t rank, auto& client) {
    sources.push_back(to_device(client, numbers_of(rank, count)));
    sums.push_back(client.empty(count * sizeof(std::int32_t)));
    client.all_reduce(sources[rank], sums[rank], ElementType::I32, devices);  // all is made
  });
  const Handle sent = to_device(fleet[0], numbers_of(1, count));
  const Handle shorter = to_device(fleet[0], numbers_of(0, count / 2));
  fleet[0].send(sent, ElementType::I32, devices[1]);
  fleet[1].receive(sources[1], ElementType::I32, devices[0]);
  fleet.for_each([](std::size_t, auto& client) { settle(client); });
  for (int i = 0; i < 20; ++i) {
    fleet[1].receive(sources[1], ElementType::I32, devices[0]);
    fleet[1].all_reduce(sources[1], sums[1], ElementType::I32, devices);  // waits for that
    fleet[1].all_reduce(sources[1], sources[1], ElementType::I32, devices);
    fleet[0].all_reduce(sources[0], sums[0], ElementType::I32, devices);
    fleet[0].all_reduce(shorter, shorter, ElementType::I32, devices);  // is refused
    fleet.for_each([](std::size_t, auto& client) { reach(client); });
    fleet[0].send(sent, ElementType::I32, devices[1]);
    fleet.for_each([&](std::size_t rank, auto& client) {
      REQUIRE(kinds_of(failures_of(client)) == std::vector{Kind::Mismatch});
      REQUIRE(read_soon(client, sums[rank]) == sum_of(2, count));
    });
    REQUIRE(sources[1].failure().has_value());
  }
}

TEMPLATE_TEST_CASE("A transfer of which one half cannot be asked for leaves the other half to nobody", "", COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 2);
  TestType fleet(2);
  const auto& devices = fleet.devices();
  const Handle source = to_device(fleet[0], numbers_of(0, 100));
  const auto copy = [&] { static_cast<void>(fleet[0].to_client(source, fleet[1], ElementType::I32)); };
  SECTION("the sender is closed") {
    shutdown(devices[0]);
    REQUIRE(kind_of<CallError>(copy) == CallError::Kind::Closed);
    fleet.reopen(0);
  }
  SECTION("the receiver is closed") {
    shutdown(devices[1]);
    REQUIRE(kind_of<CallError>(copy) == CallError::Kind::Closed);
    fleet.reopen(1);
  }
  SECTION("the receiver's queue is full") {
    DeviceThreadOptions narrow;
    narrow.queue_capacity = 2;  // what holds it up, and the allocation
    narrow.queue_policy = QueuePolicy::Fail;
    set_device_thread_options(devices[1], narrow);
    fleet.reopen(1);
    set_device_thread_options(devices[1], {});
    std::promise<void> gate;
    std::promise<void> entered;
    fleet[1].device_handle().submit([&entered, opened = gate.get_future().share()](auto&) {
      entered.set_value();
      opened.wait();
    });
    entered.get_future().wait();
    REQUIRE(kind_of<CallError>(copy) == CallError::Kind::QueueFull);
    gate.set_value();
    const auto failures = failures_of(fleet[0]);
    REQUIRE(kinds_of(failures) == std::vector{Kind::Aborted});
    REQUIRE(kind_of<CallError>([&] { std::rethrow_exception(failures[0].cause); }) == CallError::Kind::QueueFull);
    fleet.reopen(1);
  }
  const Handle fresh = to_device(fleet[0], numbers_of(7, 100));
  const Handle there = fleet[0].to_client(fresh, fleet[1], ElementType::I32);
  REQUIRE(read_soon(fleet[1], there) == numbers_of(7, 100));
}

TEMPLATE_TEST_CASE("Threads that call to_client at the same time receive what they sent themselves", "", COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 2);
  TestType fleet(2);
  constexpr std::size_t threads = 4;
  constexpr int rounds = 60;
  in_parallel(threads, [&](std::size_t thread) {
    auto here = fleet[thread % 2];
    auto there = fleet[1 - thread % 2];
    here.set_stream(StreamId::allocate());
    there.set_stream(StreamId::allocate());
    // Of different sizes, too: halves of two threads would be refused.
    const Numbers numbers(64 + 16 * thread, static_cast<std::int32_t>(thread));
    const Handle source = to_device(here, numbers);
    for (int round = 0; round < rounds; ++round) {
      std::vector<Handle> received;
      for (int i = 0; i < 50; ++i) received.push_back(here.to_client(source, there, ElementType::I32));
      for (const Handle& each : received)
        if (read_soon(there, each) != numbers) throw std::runtime_error("received what another thread sent");
    }
    settle(here);
  });
}

TEMPLATE_TEST_CASE("L10: to_client from threads and from device threads ends where the queues are full", "",
                   COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 2);
  set_settings({{"device_thread.queue_capacity", std::uint64_t{4}}, {"device_thread.queue_policy", "block"}});
  {
    TestType fleet(2);
    in_parallel(4, [&](std::size_t thread) {
      auto here = fleet[thread % 2];
      auto there = fleet[1 - thread % 2];
      const Handle source = to_device(here, Numbers(16, 5));
      for (int i = 0; i < 200; ++i) {
        std::vector<Handle> received;
        const auto send = [&] { received.push_back(here.to_client(source, there, ElementType::I32)); };
        if (thread < 2) {
          send();
        } else {
          there.device_handle().submit_blocking([&](auto&) { send(); });
        }
      }
      settle(here);
    });
    fleet.for_each([](std::size_t, auto& client) { settle(client); });
  }
  reset_settings({"device_thread.queue_capacity", "device_thread.queue_policy"});
}

TEMPLATE_TEST_CASE("A tensor without elements arrives without elements, whatever memory it is a view of", "",
                   COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 2);
  TestType fleet(2);
  const Handle memory = to_device(fleet[0], numbers_of(0, 1024));
  for (const Shape& shape : {Shape{0, 16}, Shape{16, 0}}) {
    const MemoryLayout received =
        fleet[0].to_client_tensor(memory.copy_descriptor(shape, {16, 1}, 4), fleet[1], ElementType::I32);
    CHECK(fleet[1].read_one_tensor(received.copy_descriptor(shape, 4)).empty());
    fleet.for_each([](std::size_t, auto& client) { CHECK_NOTHROW(settle(client)); });
  }
}
