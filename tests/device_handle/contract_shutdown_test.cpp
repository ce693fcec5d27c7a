// The end of a device, as both handles must have it.

#include <coxswain/tests/device_handle/contract.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <atomic>
#include <chrono>

using namespace contract;

namespace {

struct Epitaph {
  std::vector<std::string> lines;
  std::vector<std::thread::id> threads;
};
Epitaph epitaph;

template <int number>
struct Mortal {
  explicit Mortal(cox::DeviceId) {}
  Mortal(const Mortal&) = delete;
  Mortal& operator=(const Mortal&) = delete;
  ~Mortal() {
    epitaph.lines.push_back(std::to_string(number));
    epitaph.threads.push_back(std::this_thread::get_id());
  }
};

/// Its destructor says goodbye to the service it was built on.
template <class Suite>
struct Polite {
  using Base = typename Suite::template Handle<Alpha>;
  explicit Polite(cox::DeviceId id) : base(Base::get(id)) {}
  ~Polite() {
    try {
      base.submit_blocking([](Alpha& alpha) { goodbye = alpha.value; });
    } catch (const cox::CallError&) {
      goodbye = -1;
    }
    done.open();
  }
  Base base;
  static inline std::atomic<int> goodbye{0};
  static inline Gate done;
};

}  // namespace

TEMPLATE_TEST_CASE("L4: after a shutdown every call throws closed and its closure never runs", "[contract]", Threaded,
                   Inline) {
  const TestDevice device;
  auto handle = TestType::template Handle<Alpha>::get(device);
  CHECK(device.close() == cox::ShutdownOutcome::Drained);
  bool ran = false;
  const Fate fate;
  const auto closure = [&, ticket = fate.ticket()](Alpha&) { ran = true; };
  CHECK(kind_of([&] { handle.submit(closure); }) == Kind::Closed);
  CHECK(kind_of([&] { handle.submit(closure, cox::CallOptions{}); }) == Kind::Closed);
  CHECK(kind_of([&] { handle.submit_blocking(closure); }) == Kind::Closed);
  CHECK(kind_of([&] { handle.submit_blocking(closure, cox::CallOptions{}); }) == Kind::Closed);
  CHECK(kind_of([&] { handle.exclusive([&] { ran = true; }); }) == Kind::Closed);
  CHECK_FALSE(ran);
  CHECK(fate.deaths() == 0);  // but for `closure` itself nobody holds it any more
  CHECK(handle.device_id() == device.id());
  handle.flush_queue();
}

TEMPLATE_TEST_CASE("L2: a shutdown runs what was accepted", "[contract]", Threaded, Inline) {
  const TestDevice device;
  auto handle = TestType::template Handle<Alpha>::get(device);
  std::atomic<int> ran{0};
  for (int i = 0; i < 10'000; ++i) handle.submit([&](Alpha&) { ++ran; });
  CHECK(device.close() == cox::ShutdownOutcome::Drained);
  CHECK(ran == 10'000);
  CHECK(conserved(handle.statistics()));
}

TEMPLATE_TEST_CASE("L13: after a shutdown the device can be opened again, with a fresh service", "[contract]", Threaded,
                   Inline) {
  using Handle = typename TestType::template Handle<Alpha>;
  const TestDevice device;
  Handle old = Handle::get(device);
  old.submit_blocking([](Alpha& alpha) { alpha.value = 5; });
  for (int i = 0; i < 10; ++i) {
    device.close();
    Handle fresh = Handle::get(device);
    CHECK(fresh.submit_blocking([](Alpha& alpha) { return alpha.value++; }) == 0);
    CHECK(kind_of([&] { old.submit([](Alpha&) {}); }) == Kind::Closed);
  }
}

TEMPLATE_TEST_CASE("A shutdown is idempotent, and one of an unknown device is drained", "[contract]", Threaded,
                   Inline) {
  const TestDevice device;
  CHECK(cox::shutdown({.type = 0, .index = 65'001}) == cox::ShutdownOutcome::Drained);
  static_cast<void>(TestType::template Handle<Alpha>::get(device));
  CHECK(device.close() == cox::ShutdownOutcome::Drained);
  CHECK(device.close() == cox::ShutdownOutcome::Drained);
}

TEMPLATE_TEST_CASE("L4: a shutdown that may take for ever runs what was submitted", "[contract]", Threaded, Inline) {
  const TestDevice device;
  auto handle = TestType::template Handle<Alpha>::get(device);
  std::atomic<int> run{0};
  for (int i = 0; i < 100; ++i) handle.submit([&](Alpha&) { ++run; });
  CHECK(cox::shutdown(device, std::chrono::milliseconds::max()) == cox::ShutdownOutcome::Drained);
  CHECK(run == 100);
}

TEMPLATE_TEST_CASE("L10: a shutdown from a task of that device throws would_deadlock and changes nothing", "[contract]",
                   Threaded, Inline) {
  const TestDevice device;
  auto handle = TestType::template Handle<Alpha>::get(device);
  CHECK(handle.submit_blocking([&](Alpha&) { return kind_of([&] { cox::shutdown(device); }); }) == Kind::WouldDeadlock);
  CHECK(handle.submit_blocking([&](Alpha&) { return kind_of([&] { cox::shutdown_all(); }); }) == Kind::WouldDeadlock);
  CHECK(handle.submit_blocking([](Alpha&) { return 1; }) == 1);
}

TEMPLATE_TEST_CASE("Services are destroyed youngest first, on one thread", "[contract]", Threaded, Inline) {
  const TestDevice device;
  epitaph = {};
  auto first = TestType::template Handle<Mortal<1>>::get(device);
  static_cast<void>(TestType::template Handle<Mortal<2>>::get(device));
  static_cast<void>(TestType::template Handle<Mortal<3>>::get(device));
  const auto thread = first.submit_blocking([](auto&) { return std::this_thread::get_id(); });
  device.close();
  CHECK(epitaph.lines == std::vector<std::string>{"3", "2", "1"});
  CHECK(epitaph.threads == std::vector<std::thread::id>(3, thread));
}

TEMPLATE_TEST_CASE("A service's destructor may call the service it was built on, or is told closed", "[contract]",
                   Threaded, Inline) {
  using Goodbye = Polite<TestType>;
  const TestDevice device;
  Goodbye::goodbye = 0;
  Goodbye::done = Gate();
  auto alpha = TestType::template Handle<Alpha>::get(device);
  alpha.submit_blocking([](Alpha& a) { a.value = 12; });
  static_cast<void>(TestType::template Handle<Goodbye>::get(device));
  std::thread closer([&] { device.close(); });
  const bool finished = Goodbye::done.opens_within(5s);
  if (!finished) {
    closer.detach();  // it hangs: nothing can be torn down any more
    FAIL("the destructor never returned");
  }
  closer.join();
  CHECK((Goodbye::goodbye == 12 || Goodbye::goodbye == -1));
}

TEMPLATE_TEST_CASE("Calls that race with a shutdown either run or throw closed, and the figures add up", "[contract]",
                   Threaded, Inline) {
  for (int round = 0; round < (sanitized ? 20 : 100); ++round) {
    const TestDevice device;
    auto handle = TestType::template Handle<Alpha>::get(device);
    std::atomic<int> ran{0};
    std::atomic<int> accepted{0};
    std::atomic<int> waiting{4};
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&, handle, t]() mutable {
        waiting.fetch_sub(1);
        try {
          for (;;) {
            if (t % 2 == 0) {
              handle.submit([&](Alpha&) { ++ran; });
            } else {
              handle.submit_blocking([&](Alpha&) { ++ran; });
            }
            accepted.fetch_add(1);
          }
        } catch (const cox::CallError& error) {
          if (error.kind() != Kind::Closed) accepted = -1'000'000;
        }
      });
    }
    const bool all_there = eventually([&] { return waiting == 0; });
    CHECK(device.close() == cox::ShutdownOutcome::Drained);
    for (auto& thread : threads) thread.join();
    REQUIRE(all_there);
    REQUIRE(accepted == ran);
    REQUIRE(conserved(handle.statistics()));
  }
}
