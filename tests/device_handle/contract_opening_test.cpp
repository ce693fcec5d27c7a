// How services come to be: exactly once, from anywhere. One suite, both handles.

#include <coxswain/tests/device_handle/contract.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <latch>
#include <stdexcept>

using namespace contract;

namespace {

std::atomic<int> built{0};
struct Counted {
  explicit Counted(cox::DeviceId) { built.fetch_add(1); }
};

std::atomic<int> failures_left{0};
struct FailsAtFirst {
  explicit FailsAtFirst(cox::DeviceId id) {
    if (failures_left.fetch_sub(1) > 0) throw std::runtime_error("no luck on " + id.to_string());
  }
};

struct Facts {
  int answer;
};
struct Informed {
  explicit Informed(cox::DeviceId) {}
  [[nodiscard]] std::shared_ptr<const Facts> utilities() const { return facts; }
  std::shared_ptr<const Facts> facts = std::make_shared<const Facts>(Facts{42});
};

struct Ready {
  std::unique_ptr<int> value;  // no constructor from a DeviceId
};

struct SlowToBuild {
  explicit SlowToBuild(cox::DeviceId) {
    building.open();
    finish_gate.wait();
  }
  static inline Gate building, finish_gate;
};

}  // namespace

TEMPLATE_TEST_CASE("32 threads that get a service at once build it exactly once", "[contract]", Threaded, Inline) {
  for (int round = 0; round < 20; ++round) {
    const TestDevice device;
    built = 0;
    std::latch start(32);
    std::vector<std::thread> threads;
    std::atomic<int> answers{0};
    for (int t = 0; t < 32; ++t) {
      threads.emplace_back([&] {
        start.arrive_and_wait();
        auto handle = TestType::template Handle<Counted>::get(device);
        handle.submit_blocking([&](Counted&) { answers.fetch_add(1); });
      });
    }
    for (auto& thread : threads) thread.join();
    REQUIRE(built == 1);
    REQUIRE(answers == 32);
  }
}

TEMPLATE_TEST_CASE("A constructor that throws is told to the caller unchanged and tried again by the next get",
                   "[contract]", Threaded, Inline) {
  const TestDevice device;
  failures_left = 2;
  const auto get = [&] { return TestType::template Handle<FailsAtFirst>::get(device); };
  CHECK_THROWS_WITH(get(), "no luck on " + device.id().to_string());
  CHECK_THROWS_AS(get(), std::runtime_error);
  CHECK_NOTHROW(get());
  CHECK(failures_left == -1);
}

TEMPLATE_TEST_CASE("insert registers a ready service; a second one of its type is already_registered", "[contract]",
                   Threaded, Inline) {
  using Handle = typename TestType::template Handle<Ready>;
  const TestDevice device;
  Handle handle = Handle::insert(device, Ready{std::make_unique<int>(5)});
  CHECK(handle.submit_blocking([](Ready& ready) { return *ready.value; }) == 5);
  try {
    Handle::insert(device, Ready{std::make_unique<int>(6)});
    FAIL("a second one was taken");
  } catch (const cox::CallError& error) {
    CHECK(error.kind() == Kind::AlreadyRegistered);
    CHECK_THAT(error.what(), Catch::Matchers::ContainsSubstring("already_registered") &&
                                 Catch::Matchers::ContainsSubstring(device.id().to_string()));
  }
  CHECK(handle.submit_blocking([](Ready& ready) { return *ready.value; }) == 5);
}

TEMPLATE_TEST_CASE("Of 16 threads that insert at once one succeeds", "[contract]", Threaded, Inline) {
  using Handle = typename TestType::template Handle<Ready>;
  const TestDevice device;
  std::latch start(16);
  std::atomic<int> inserted{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 16; ++t) {
    threads.emplace_back([&] {
      start.arrive_and_wait();
      if (!kind_of([&] { Handle::insert(device, Ready{}); })) inserted.fetch_add(1);
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(inserted == 1);
}

TEMPLATE_TEST_CASE("get finds what was inserted", "[contract]", Threaded, Inline) {
  const TestDevice device;
  built = 0;
  TestType::template Handle<Counted>::insert(device, Counted(device));
  static_cast<void>(TestType::template Handle<Counted>::get(device));
  CHECK(built == 1);
}

TEMPLATE_TEST_CASE("utilities, get of a known service and statistics need no round trip", "[contract]", Threaded,
                   Inline) {
  const TestDevice device;
  auto handle = TestType::template Handle<Informed>::get(device);
  const Occupied occupied(handle);
  CHECK(handle.utilities()->answer == 42);
  CHECK(TestType::template Handle<Informed>::get(device).utilities()->answer == 42);
  CHECK(handle.statistics().accepted >= 1);
}

TEST_CASE("The two stages of a device are two threads", "[contract]") {
  const TestDevice device;
  auto down = cox::DeviceHandle<Alpha>::get(device);
  auto up = cox::DeviceHandle<Up>::get(device);
  auto down_too = cox::DeviceHandle<Beta>::get(device);
  const auto id = [](auto&) { return std::this_thread::get_id(); };
  CHECK(down.submit_blocking(id) == down_too.submit_blocking(id));
  CHECK(down.submit_blocking(id) != up.submit_blocking(id));
  CHECK(cox::statistics(device, cox::Stage::Upstream).accepted == up.statistics().accepted);
}

TEMPLATE_TEST_CASE("A stage goes on while the other is occupied", "[contract]", Threaded, Inline) {
  const TestDevice device;
  auto down = TestType::template Handle<Alpha>::get(device);
  auto up = TestType::template Handle<Up>::get(device);
  const Occupied occupied(down);
  CHECK(up.submit_blocking([](Up&) { return 1; }) == 1);
}

TEMPLATE_TEST_CASE("Bringing up one device never waits for another", "[contract]", Threaded, Inline) {
  const TestDevice slow;
  const TestDevice other;
  SlowToBuild::building = Gate();
  SlowToBuild::finish_gate = Gate();
  std::thread opener([&] { static_cast<void>(TestType::template Handle<SlowToBuild>::get(slow)); });
  SlowToBuild::building.wait();
  CHECK(TestType::template Handle<Alpha>::get(other).submit_blocking([](Alpha&) { return 1; }) == 1);
  SlowToBuild::finish_gate.open();
  opener.join();
}

TEST_CASE("A device that does not exist has no statistics", "[contract]") {
  const auto statistics = cox::statistics({.type = 0, .index = 65'000});
  CHECK(statistics.accepted == 0);
  CHECK(statistics.queue_bytes == 0);
}
