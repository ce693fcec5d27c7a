// Forced ends and rings: what only a device with a thread can get into.

#include <coxswain/tests/device_handle/contract.hpp>
#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tests/support/failing_allocation.hpp>

#include <array>
#include <new>

using namespace contract;
using cox::ShutdownOutcome;

namespace {

/// Waits in its destructor, perhaps when the static gate is gone.
class Lingering {
 public:
  explicit Lingering(cox::DeviceId) {}
  ~Lingering() { gate_.wait(); }
  static inline Gate exit_gate;

 private:
  Gate gate_ = exit_gate;
};

}  // namespace

TEST_CASE("L4: from the moment a shutdown begins calls throw closed, although a task still runs", "[shutdown]") {
  const TestDevice device;
  auto handle = cox::DeviceHandle<Alpha>::get(device);
  auto occupied = std::make_unique<Occupied<cox::DeviceHandle<Alpha>>>(handle);
  std::atomic<bool> queued_ran{false};
  handle.submit([&](Alpha&) { queued_ran = true; });
  ShutdownOutcome outcome{};
  std::thread closer([&] { outcome = device.close(); });
  std::uint64_t accepted = 0;
  const bool refused = eventually([&] {
    const bool closed = kind_of([&] { handle.submit([](Alpha&) {}); }) == Kind::Closed;
    if (!closed) ++accepted;
    return closed;
  });
  CHECK(refused);
  CHECK(kind_of([&] { handle.submit_blocking([](Alpha&) {}); }) == Kind::Closed);
  CHECK_FALSE(queued_ran);
  occupied.reset();
  closer.join();
  CHECK(outcome == ShutdownOutcome::Drained);
  CHECK(queued_ran);
  CHECK(conserved(handle.statistics()));
}

TEST_CASE("L13: a shutdown that there is no memory for can be repeated, and ends the devices then", "[shutdown]") {
  for (int k = 0;; ++k) {
    REQUIRE(k < 100);
    const TestDevice device;
    auto handle = cox::DeviceHandle<Alpha>::get(device);
    auto inline_handle = cox::InlineDeviceHandle<Alpha>::get(device);
    handle.submit([](Alpha&) {});
    bool failed = false;
    cox::test::allocations_until_failure = k;
    try {
      device.close();
    } catch (const std::bad_alloc&) {
      failed = true;
    }
    cox::test::allocations_until_failure = -1;
    CHECK(device.close() == ShutdownOutcome::Drained);
    CHECK(kind_of([&] { handle.submit([](Alpha&) {}); }) == Kind::Closed);
    CHECK(kind_of([&] { inline_handle.submit([](Alpha&) {}); }) == Kind::Closed);
    auto again = cox::DeviceHandle<Alpha>::get(device);  // would wait for ever for a device that stays closing
    again.submit_blocking([](Alpha&) {});
    if (!failed) return;
  }
}

TEST_CASE("L2: a shutdown with 1,000 blocked callers answers all of them", "[shutdown]") {
  constexpr int callers = sanitized ? 200 : 1000;
  for (const bool forced : {false, true}) {
    const TestDevice device;
    auto handle = cox::DeviceHandle<Alpha>::get(device);
    std::atomic<int> answered{0};
    std::atomic<int> closed{0};
    std::vector<std::thread> threads;
    Gate started;
    Gate gate;
    handle.submit([started, gate](Alpha&) {
      started.open();
      gate.wait();
    });
    started.wait();
    for (int t = 0; t < callers; ++t) {
      threads.emplace_back([&, handle]() mutable {
        const auto kind = kind_of([&] { handle.submit_blocking([&](Alpha&) { ++answered; }); });
        if (kind == Kind::Closed) ++closed;
      });
    }
    REQUIRE(eventually([&] { return handle.statistics().depth >= callers + 1; }));
    if (forced) {
      CHECK(device.close(1ms) == ShutdownOutcome::Abandoned);
      for (auto& thread : threads) thread.join();
      CHECK(closed == callers);
      gate.open();
    } else {
      std::thread closer([&] { device.close(); });
      REQUIRE(eventually([&] { return kind_of([&] { handle.submit([](Alpha&) {}); }) == Kind::Closed; }));
      gate.open();
      for (auto& thread : threads) thread.join();
      closer.join();
      CHECK(answered == callers);
    }
    REQUIRE(eventually([&] { return conserved(handle.statistics()); }));
  }
}

TEST_CASE("L2: when the time is up, what has not started is destroyed exactly once and its callers are answered",
          "[shutdown]") {
  const TestDevice device;
  auto handle = cox::DeviceHandle<Alpha>::get(device);
  const Fate fate;
  std::atomic<bool> ran{false};
  std::optional<Kind> kind;
  Gate gate;
  Gate started;
  Gate first_died;
  handle.submit([&](Alpha&) {
    started.open();
    gate.wait();
  });
  started.wait();
  for (int i = 0; i < 1000; ++i) handle.submit([&, ticket = fate.ticket()](Alpha&) { ran = true; });
  handle.submit([&, ticket = fate.ticket(), block = std::array<char, 2000>{}](Alpha&) { ran = block[0] == 0; });
  handle.submit([&, ticket = fate.ticket()](Alpha&) { ran = true; }, before(std::chrono::steady_clock::now() + 1h));
  std::thread caller([&] { kind = kind_of([&] { handle.submit_blocking([&](Alpha&) { ran = true; }); }); });
  std::optional<Kind> guarded;
  std::thread guarded_caller([&] {
    guarded = kind_of(
        [&] { handle.submit_blocking([&](Alpha&) { ran = true; }, before(std::chrono::steady_clock::now() + 1h)); });
  });
  REQUIRE(eventually([&] { return handle.statistics().depth == 1005; }));
  // The task ends within the grace that a stuck one is given.
  std::thread closer;
  ShutdownOutcome outcome{};
  closer = std::thread([&] { outcome = device.close(0ms); });
  std::uint64_t more = 0;
  REQUIRE(eventually([&] {
    const bool closed = kind_of([&] { handle.submit([](Alpha&) {}); }) == Kind::Closed;
    if (!closed) ++more;
    return closed;
  }));
  gate.open();
  closer.join();
  caller.join();
  guarded_caller.join();
  CHECK(outcome != ShutdownOutcome::Drained);
  if (outcome == ShutdownOutcome::Discarded && !ran) {
    CHECK(kind == Kind::Closed);
    CHECK(guarded == Kind::Closed);
    CHECK(handle.statistics().cancelled == 1004 + more);
  }
  CHECK(fate.deaths() == 1002);
  CHECK(eventually([&] { return conserved(handle.statistics()); }));
}

TEST_CASE("A task that never returns is abandoned in bounded time and everyone who waits is answered", "[shutdown]") {
  const TestDevice device;
  auto handle = cox::DeviceHandle<Alpha>::get(device);
  const Fate fate;
  Gate gate;
  Gate started;
  Gate returned;
  handle.submit([gate, started, returned](Alpha&) {
    started.open();
    gate.wait();
    returned.open();
  });
  started.wait();
  std::optional<Kind> kind;
  std::thread caller([&] { kind = kind_of([&] { handle.submit_blocking([](Alpha&) {}); }); });
  for (int i = 0; i < 100; ++i) handle.submit([ticket = fate.ticket()](Alpha&) {});
  REQUIRE(eventually([&] { return handle.statistics().depth == 102; }));
  const auto start = std::chrono::steady_clock::now();
  CHECK(device.close(50ms) == ShutdownOutcome::Abandoned);
  CHECK(std::chrono::steady_clock::now() - start < 5s);
  caller.join();
  CHECK(kind == Kind::Closed);
  CHECK(fate.deaths() == 100);
  CHECK(handle.statistics().cancelled == 101);
  // The device is usable again while the old thread is still stuck, and after it has come back.
  auto fresh = cox::DeviceHandle<Alpha>::get(device);
  CHECK(fresh.submit_blocking([](Alpha&) { return 1; }) == 1);
  gate.open();
  CHECK(returned.opens_within(never));
  CHECK(fresh.submit_blocking([](Alpha&) { return 2; }) == 2);
  CHECK(eventually([&] { return conserved(handle.statistics()); }));
}

TEST_CASE("L2: a stuck task that comes back while its queue is being discarded harms nothing", "[shutdown]") {
  for (int round = 0; round < (sanitized ? 3 : 10); ++round) {
    const TestDevice device;
    auto handle = cox::DeviceHandle<Alpha>::get(device);
    Gate gate;
    Gate started;
    const Fate fate;
    handle.submit([gate, started, block = std::array<char, 1000>{}](Alpha&) {  // in a recycled block
      started.open();
      gate.wait();
      static_cast<void>(block);
    });
    started.wait();
    std::shared_ptr<void> opener(nullptr, [gate](void*) { gate.open(); });
    handle.submit([opener = std::move(opener)](Alpha&) {});  // dies first, lets the stuck task go on
    for (int i = 0; i < 5000; ++i) {
      handle.submit([ticket = fate.ticket(), block = std::array<char, 1000>{}](Alpha&) { static_cast<void>(block); });
    }
    CHECK(device.close(0ms) == ShutdownOutcome::Abandoned);
    CHECK(fate.deaths() == 5000);
    CHECK(eventually([&] { return conserved(handle.statistics()); }, 5s));
  }
}

TEST_CASE("L13: a device that is busy discarding its queue is not abandoned", "[shutdown]") {
  const TestDevice device;
  auto handle = cox::DeviceHandle<Alpha>::get(device);
  Gate started;
  std::atomic<int> deaths{0};
  const auto slow_death = [&](void*) {
    const auto end = std::chrono::steady_clock::now() + 1ms;
    while (std::chrono::steady_clock::now() < end) {
    }
    ++deaths;
  };
  std::atomic<bool> let_go{false};
  handle.submit([&](Alpha&) {
    started.open();
    while (!let_go) {
    }
  });
  started.wait();
  for (int i = 0; i < 400; ++i) handle.submit([held = std::shared_ptr<void>(nullptr, slow_death)](Alpha&) {});
  std::thread closer;
  ShutdownOutcome outcome{};
  closer = std::thread([&] { outcome = device.close(0ms); });
  REQUIRE(eventually([&] { return kind_of([&] { handle.submit([](Alpha&) {}); }) == Kind::Closed; }));
  let_go = true;
  closer.join();
  CHECK(deaths == 400);
  CHECK(outcome == ShutdownOutcome::Discarded);
}

TEST_CASE("A service whose destructor does not return keeps a shutdown no longer than its time", "[shutdown]") {
  Lingering::exit_gate = Gate();
  const TestDevice device;
  static_cast<void>(cox::DeviceHandle<Lingering>::get(device));
  Gate closed;
  std::thread closer([&] {
    device.close(20ms);
    closed.open();
  });
  CHECK(closed.opens_within(5s));
  Lingering::exit_gate.open();
  closer.join();
}

TEST_CASE("A second shutdown does not say drained while the first still waits", "[shutdown]") {
  const TestDevice device;
  auto handle = cox::DeviceHandle<Alpha>::get(device);
  auto occupied = std::make_unique<Occupied<cox::DeviceHandle<Alpha>>>(handle);
  std::atomic<bool> ran{false};
  handle.submit([&](Alpha&) { ran = true; });
  std::thread closer([&] { device.close(20s); });
  REQUIRE(eventually([&] { return kind_of([&] { handle.submit([](Alpha&) {}); }) == Kind::Closed; }));
  const auto outcome = device.close(1ms);
  CHECK((outcome != ShutdownOutcome::Drained || ran));
  occupied.reset();
  closer.join();
}

TEST_CASE("shutdown_all ends every device, and get waits for a shutdown under way", "[shutdown]") {
  const TestDevice one;
  const TestDevice two;
  auto a = cox::DeviceHandle<Alpha>::get(one);
  auto b = cox::DeviceHandle<Alpha>::get(two);
  auto occupied = std::make_unique<Occupied<cox::DeviceHandle<Alpha>>>(a);
  ShutdownOutcome outcome{};
  std::thread closer([&] { outcome = cox::shutdown_all(20s); });
  REQUIRE(eventually([&] { return kind_of([&] { b.submit([](Alpha&) {}); }) == Kind::Closed; }));
  std::atomic<bool> opened{false};
  std::thread opener([&] {
    static_cast<void>(cox::DeviceHandle<Alpha>::get(one));
    opened = true;
  });
  CHECK_FALSE(opened);
  occupied.reset();
  closer.join();
  opener.join();
  CHECK(opened);
  CHECK(outcome == ShutdownOutcome::Drained);
  CHECK(cox::DeviceHandle<Alpha>::get(two).submit_blocking([](Alpha&) { return 1; }) == 1);
}

TEST_CASE("L13: several stuck devices keep a shutdown no longer than one does", "[shutdown]") {
  std::vector<std::unique_ptr<TestDevice>> devices;
  std::vector<std::unique_ptr<Occupied<cox::DeviceHandle<Alpha>>>> stuck;
  for (int i = 0; i < 8; ++i) {
    devices.push_back(std::make_unique<TestDevice>());
    stuck.push_back(
        std::make_unique<Occupied<cox::DeviceHandle<Alpha>>>(cox::DeviceHandle<Alpha>::get(*devices.back())));
  }
  const auto start = std::chrono::steady_clock::now();
  CHECK(cox::shutdown_all(50ms) == ShutdownOutcome::Abandoned);
  CHECK(std::chrono::steady_clock::now() - start < 4s);  // one takes a second; each by itself: 8 s
}

TEST_CASE("L4: from the moment a shutdown begins an inline device refuses calls", "[shutdown]") {
  const TestDevice device;
  auto handle = cox::InlineDeviceHandle<Alpha>::get(device);
  auto occupied = std::make_unique<Occupied<cox::InlineDeviceHandle<Alpha>>>(handle);
  ShutdownOutcome outcome{};
  std::thread closer([&] { outcome = device.close(); });
  std::optional<Kind> kind;
  bool ran = false;
  // A call made before would wait for the thread that is inside; get() does not enter the device.
  const bool refused = eventually([&] {
    cox::WaitNode node;
    const cox::HeldNode held(node);
    return kind_of([&] { static_cast<void>(cox::InlineDeviceHandle<Alpha>::get(device)); }) == Kind::Closed;
  });
  REQUIRE(refused);
  kind = kind_of([&] { handle.submit([&](Alpha&) { ran = true; }); });
  CHECK(kind == Kind::Closed);
  CHECK_FALSE(ran);
  occupied.reset();
  closer.join();
  CHECK(outcome == ShutdownOutcome::Drained);
}

TEST_CASE("L13: an inline device whose shutdown was abandoned is closed by the thread that leaves it", "[shutdown]") {
  static std::atomic<int> alive;
  alive = 0;
  struct Counted {
    explicit Counted(cox::DeviceId) { ++alive; }
    Counted(const Counted&) = delete;
    Counted& operator=(const Counted&) = delete;
    ~Counted() { --alive; }
  };
  const TestDevice device;
  auto handle = cox::InlineDeviceHandle<Counted>::get(device);
  Fate fate;
  std::atomic<bool> queued_ran{false};
  Gate started;
  Gate go_on;
  std::optional<Kind> from_inside;
  std::thread inside([&] {
    handle.submit([&](Counted&) {
      handle.submit([&, ticket = fate.ticket()](Counted&) { queued_ran = true; });
      started.open();
      go_on.wait();
      from_inside = kind_of([&] { handle.submit([](Counted&) {}); });
    });
  });
  started.wait();
  CHECK(device.close(20ms) == ShutdownOutcome::Abandoned);
  CHECK(alive == 1);
  go_on.open();
  inside.join();
  CHECK(from_inside == Kind::Closed);
  CHECK_FALSE(queued_ran);
  CHECK(fate.deaths() == 1);
  CHECK(alive == 0);
  CHECK(kind_of([&] { handle.submit([](Counted&) {}); }) == Kind::Closed);
  CHECK(conserved(handle.statistics()));
  static_cast<void>(cox::InlineDeviceHandle<Counted>::get(device));
  CHECK(alive == 1);
}
