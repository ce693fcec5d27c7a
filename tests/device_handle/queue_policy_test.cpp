// L7: what a full queue does under each policy. Device threads only: an inline device has no queue.

#include <coxswain/device_handle/base/exceed_capacity.hpp>
#include <coxswain/tests/device_handle/contract.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <future>

using namespace contract;
using cox::QueuePolicy;

namespace {

cox::DeviceThreadOptions limited(QueuePolicy policy, std::size_t capacity) {
  cox::DeviceThreadOptions options;
  options.queue_policy = policy;
  options.queue_capacity = capacity;
  return options;
}

}  // namespace

TEST_CASE("L7: under Fail the call past the capacity throws queue_full, and after room is made calls go on",
          "[policy]") {
  const TestDevice device(limited(QueuePolicy::Fail, 100));
  auto handle = cox::DeviceHandle<Alpha>::get(device);
  REQUIRE(at_rest(handle).depth == 0);
  std::atomic<int> ran{0};
  for (int round = 0; round < 5; ++round) {
    ran = 0;
    int accepted = 0;
    const Fate fate;
    {
      const Occupied occupied(handle);  // the task that runs counts too until it has ended
      std::optional<Kind> kind;
      while (!kind) {
        kind = kind_of([&] { handle.submit([&, ticket = fate.ticket()](Alpha&) { ++ran; }); });
        if (!kind) ++accepted;
      }
      CHECK(kind == Kind::QueueFull);
      CHECK((accepted == 99 || accepted == 100));
      CHECK(fate.deaths() == 1);
      CHECK(kind_of([&] { handle.submit_blocking([](Alpha&) {}); }) == Kind::QueueFull);
    }
    const auto statistics = at_rest(handle);
    CHECK(ran == accepted);
    CHECK(fate.deaths() == accepted + 1);
    CHECK(conserved(statistics));
  }
}

TEST_CASE("L7: the message of queue_full names the device and the capacity", "[policy]") {
  const TestDevice device(limited(QueuePolicy::Fail, 7));
  auto handle = cox::DeviceHandle<Alpha>::get(device);
  const Occupied occupied(handle);
  std::string what;
  try {
    for (int i = 0; i < 10; ++i) handle.submit([](Alpha&) {});
  } catch (const cox::CallError& error) {
    what = error.what();
  }
  CHECK_THAT(what, Catch::Matchers::ContainsSubstring("queue_full") &&
                       Catch::Matchers::ContainsSubstring(device.id().to_string()) &&
                       Catch::Matchers::ContainsSubstring("7"));
}

TEST_CASE("L7: under Fail a device thread that fills its own queue gets queue_full as well", "[policy]") {
  const TestDevice device(limited(QueuePolicy::Fail, 10));
  auto handle = cox::DeviceHandle<Alpha>::get(device);
  const int accepted = handle.submit_blocking([&](Alpha&) {
    int count = 0;
    while (count < 1000 && !kind_of([&] { handle.submit([](Alpha&) {}); })) ++count;
    return count;
  });
  CHECK(accepted <= 10);
}

TEST_CASE("L7: under Block a client waits for room and goes on, and nothing is lost", "[policy]") {
  const TestDevice device(limited(QueuePolicy::Block, 16));
  auto handle = cox::DeviceHandle<Alpha>::get(device);
  constexpr int per_thread = scaled(50'000);
  std::atomic<std::size_t> deepest{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, handle]() mutable {
      for (int i = 0; i < per_thread; ++i) handle.submit([](Alpha& alpha) { ++alpha.value; });
    });
  }
  std::atomic<bool> stop{false};
  std::thread observer([&] {
    while (!stop) deepest = std::max(deepest.load(), handle.statistics().depth);
  });
  for (auto& thread : threads) thread.join();
  stop = true;
  observer.join();
  CHECK(handle.submit_blocking([](Alpha& alpha) { return alpha.value; }) == 4 * per_thread);
  CHECK(deepest <= 16 + 16);  // a chunk of credits comes back after its tasks have ended
}

TEST_CASE("L7: under Block a thread that may exceed the capacity does not wait, with options or without", "[policy]") {
  const TestDevice device(limited(QueuePolicy::Block, 4));
  auto handle = cox::DeviceHandle<Alpha>::get(device);
  REQUIRE(at_rest(handle).depth == 0);
  std::atomic<int> ran{0};
  {
    const Occupied occupied(handle);
    const cox::detail::ExceedCapacity exceed;
    for (int i = 0; i < 10; ++i) {
      handle.submit([&ran](Alpha&) { ++ran; });
      handle.submit([&ran](Alpha&) { ++ran; }, before(std::chrono::steady_clock::now() + never));
    }
  }
  CHECK(conserved(at_rest(handle)));
  CHECK(ran == 20);
}

TEST_CASE("L7: under Block a submit to a full queue returns only when there is room", "[policy]") {
  const TestDevice device(limited(QueuePolicy::Block, 4));
  auto handle = cox::DeviceHandle<Alpha>::get(device);
  REQUIRE(at_rest(handle).depth == 0);
  std::atomic<int> submitted{0};
  Gate finished;
  std::thread client;
  {
    const Occupied occupied(handle);
    client = std::thread([&, handle]() mutable {
      for (int i = 0; i < 10; ++i) {
        handle.submit([](Alpha& alpha) { ++alpha.value; });
        ++submitted;
      }
      finished.open();
    });
    REQUIRE(eventually([&] { return submitted >= 3; }));
    CHECK_FALSE(finished.opens_within(20ms));
    CHECK(submitted <= 4);
  }
  CHECK(finished.opens_within(never));
  client.join();
  CHECK(handle.submit_blocking([](Alpha& alpha) { return alpha.value; }) == 10);
}

TEST_CASE("L7: under Block a device thread is not blocked by its own full queue nor by another's", "[policy]") {
  const TestDevice here(limited(QueuePolicy::Block, 4));
  const TestDevice there(limited(QueuePolicy::Block, 4));
  auto own = cox::DeviceHandle<Alpha>::get(here);
  auto other = cox::DeviceHandle<Alpha>::get(there);
  Gate finished;
  {
    const Occupied occupied(other);
    own.submit([&, own, other](Alpha&) mutable {
      for (int i = 0; i < 100; ++i) {
        own.submit([](Alpha& alpha) { ++alpha.value; });
        other.submit([](Alpha& alpha) { ++alpha.value; });
      }
      finished.open();
    });
    CHECK(finished.opens_within(never));
  }
  CHECK(own.submit_blocking([](Alpha& alpha) { return alpha.value; }) == 100);
  CHECK(other.submit_blocking([](Alpha& alpha) { return alpha.value; }) == 100);
}

TEST_CASE("L4: a client that waits for room is told closed when the shutdown begins", "[policy]") {
  const TestDevice device(limited(QueuePolicy::Block, 2));
  auto handle = cox::DeviceHandle<Alpha>::get(device);
  std::vector<std::thread> clients;
  std::atomic<int> closed{0};
  std::atomic<int> submitted{0};
  Gate all_closed;
  auto occupied = std::make_unique<Occupied<cox::DeviceHandle<Alpha>>>(handle);
  for (int t = 0; t < 8; ++t) {
    clients.emplace_back([&, handle]() mutable {
      const auto kind = kind_of([&] {
        for (;;) {
          handle.submit([](Alpha&) {});
          ++submitted;
        }
      });
      if (kind == Kind::Closed && ++closed == 8) all_closed.open();
    });
  }
  REQUIRE(eventually([&] { return submitted >= 1; }));
  std::thread closer([&] { device.close(); });
  CHECK(all_closed.opens_within(never));
  occupied.reset();
  closer.join();
  for (auto& client : clients) client.join();
}

TEST_CASE("L7: under Block a blocking caller leaves a full queue's door at its deadline and on stop", "[policy]") {
  const TestDevice device(limited(QueuePolicy::Block, 2));
  auto handle = cox::DeviceHandle<Alpha>::get(device);
  std::optional<Kind> by_deadline;
  std::optional<Kind> by_stop;
  std::stop_source stop;
  Gate deadline_returned;
  Gate stop_returned;
  std::atomic<int> filled{0};
  std::vector<std::thread> callers;
  {
    const Occupied occupied(handle);
    callers.emplace_back([&, handle]() mutable {
      for (int i = 0; i < 3; ++i) {
        handle.submit([](Alpha&) {});
        ++filled;
      }
    });
    REQUIRE(eventually([&] { return filled >= 1; }));
    callers.emplace_back([&, handle]() mutable {
      by_deadline =
          kind_of([&] { handle.submit_blocking([](Alpha&) {}, before(std::chrono::steady_clock::now() + 20ms)); });
      deadline_returned.open();
    });
    callers.emplace_back([&, handle]() mutable {
      by_stop = kind_of([&] { handle.submit_blocking([](Alpha&) {}, unless(stop.get_token())); });
      stop_returned.open();
    });
    stop.request_stop();
    CHECK(deadline_returned.opens_within(3s));
    CHECK(stop_returned.opens_within(3s));
  }
  for (auto& caller : callers) caller.join();
  CHECK(by_deadline == Kind::Expired);
  CHECK(by_stop == Kind::Cancelled);
}

TEST_CASE("L7: clients that are idle keep no part of the capacity to themselves", "[policy]") {
  constexpr int idle_clients = 300;
  for (const QueuePolicy policy : {QueuePolicy::Fail, QueuePolicy::Block}) {
    const TestDevice device(limited(policy, 8192));
    auto handle = cox::DeviceHandle<Alpha>::get(device);
    Gate leave;
    std::atomic<int> submitted{0};
    std::atomic<int> turned_away{0};
    std::vector<std::thread> clients;
    for (int t = 0; t < idle_clients; ++t) {
      clients.emplace_back([&, handle]() mutable {
        if (kind_of([&] { handle.submit_blocking([](Alpha&) {}); })) ++turned_away;
        ++submitted;
        leave.wait();
      });
    }
    CHECK(eventually([&] { return submitted == idle_clients; }, 5s));
    CHECK(turned_away == 0);
    Gate finished;
    std::atomic<bool> refused{false};
    std::thread client([&, handle]() mutable {
      refused = kind_of([&] {
                  const Occupied occupied(handle);
                  for (int i = 0; i < 1000; ++i) handle.submit([](Alpha&) {});
                }).has_value();
      finished.open();
    });
    CHECK(finished.opens_within(5s));  // 1,000 of 8,192
    CHECK_FALSE(refused);
    leave.open();  // gives back what they kept, so that a client that waits for room goes on
    if (!finished.is_open()) device.close();
    client.join();
    for (auto& idle : clients) idle.join();
  }
}

TEST_CASE("Grow takes whatever comes and gives the memory back", "[policy]") {
  const TestDevice device(limited(QueuePolicy::Grow, 16));
  auto handle = cox::DeviceHandle<Alpha>::get(device);
  constexpr int count = scaled(200'000);
  {
    const Occupied occupied(handle);
    for (int i = 0; i < count; ++i) handle.submit([](Alpha& alpha) { ++alpha.value; });
    CHECK(handle.statistics().queue_bytes >= std::size_t{count} * 64);
  }
  CHECK(handle.submit_blocking([](Alpha& alpha) { return alpha.value; }) == count);
  CHECK(eventually([&] { return handle.statistics().queue_bytes < 1U << 20U; }, 5s));
}

TEST_CASE("A policy concerns threads that start after it was set", "[policy]") {
  const TestDevice device;
  auto handle = cox::DeviceHandle<Alpha>::get(device);
  cox::set_device_thread_options(device, limited(QueuePolicy::Fail, 1));
  {
    const Occupied occupied(handle);
    for (int i = 0; i < 10; ++i) handle.submit([](Alpha&) {});
  }
  device.close();
  auto again = cox::DeviceHandle<Alpha>::get(device);
  const Occupied occupied(again);
  std::optional<Kind> kind;
  for (int i = 0; i < 10 && !kind; ++i) kind = kind_of([&] { again.submit([](Alpha&) {}); });
  CHECK(kind == Kind::QueueFull);
}
