// L10: a ring of waits is refused, and nothing that is no ring is.

#include <coxswain/tests/device_handle/contract.hpp>
#include <coxswain/tests/support/catch.hpp>

using namespace contract;

namespace {

using Handle = cox::DeviceHandle<Alpha>;

/// Runs `f()` in a task of `handle`'s device; the gate opens when it has returned.
template <class F>
Gate in_task(Handle handle, F f) {
  Gate done;
  handle.submit([f = std::move(f), done](Alpha&) mutable {
    f();
    done.open();
  });
  return done;
}

struct UpSelf {
  static constexpr cox::Stage stage = cox::Stage::Upstream;
  explicit UpSelf(cox::DeviceId id);
};
struct DownOfUp {
  explicit DownOfUp(cox::DeviceId id) { static_cast<void>(cox::DeviceHandle<UpSelf>::get(id)); }
};
UpSelf::UpSelf(cox::DeviceId id) { static_cast<void>(cox::DeviceHandle<DownOfUp>::get(id)); }

}  // namespace

TEST_CASE("L10: of two devices whose tasks wait for each other one gets would_deadlock, the other its answer",
          "[L10]") {
  for (int round = 0; round < 200; ++round) {
    const TestDevice zero;
    const TestDevice one;
    Handle a = Handle::get(zero);
    Handle b = Handle::get(one);
    std::optional<Kind> from_a;
    std::optional<Kind> from_b;
    Gate a_is_in;
    Gate b_is_in;
    const Gate a_done = in_task(a, [&, b]() mutable {
      a_is_in.open();
      b_is_in.wait();
      from_a = kind_of([&] { b.submit_blocking([](Alpha&) {}); });
    });
    const Gate b_done = in_task(b, [&, a]() mutable {
      b_is_in.open();
      a_is_in.wait();
      from_b = kind_of([&] { a.submit_blocking([](Alpha&) {}); });
    });
    REQUIRE(a_done.opens_within(never));
    REQUIRE(b_done.opens_within(never));
    const bool one_refused = (from_a == Kind::WouldDeadlock) != (from_b == Kind::WouldDeadlock);
    REQUIRE(one_refused);
    REQUIRE((!from_a || !from_b));
    REQUIRE(a.submit_blocking([](Alpha&) { return 1; }) == 1);
    REQUIRE(b.submit_blocking([](Alpha&) { return 1; }) == 1);
  }
}

TEST_CASE("L10: a ring of three devices is found, with every kind of wait", "[L10]") {
  const TestDevice devices[3];
  Handle handles[3] = {Handle::get(devices[0]), Handle::get(devices[1]), Handle::get(devices[2])};
  std::optional<Kind> kinds[3];
  Gate in[3];
  std::vector<Gate> done;
  for (std::size_t i = 0; i < 3; ++i) {
    done.push_back(in_task(handles[i], [&, i] {
      in[i].open();
      for (const Gate& gate : in) gate.wait();
      Handle& next = handles[(i + 1) % 3];
      kinds[i] = kind_of([&] {
        if (i == 0) next.submit_blocking([](Alpha&) {});
        if (i == 1) next.submit_blocking([](Alpha&) {}, before(std::chrono::steady_clock::now() + 1h));
        if (i == 2) next.exclusive([] {});
      });
    }));
  }
  for (const Gate& gate : done) REQUIRE(gate.opens_within(never));
  CHECK(std::ranges::count(kinds, std::optional(Kind::WouldDeadlock)) == 1);
  CHECK(std::ranges::count(kinds, std::optional<Kind>()) == 2);
}

TEST_CASE("L10: a device whose wait has been answered waits no more", "[L10]") {
  // zero waits for the first task of one; one's next task calls zero, which by then is free or about to be.
  for (int round = 0; round < 500; ++round) {
    const TestDevice zero;
    const TestDevice one;
    Handle a = Handle::get(zero);
    Handle b = Handle::get(one);
    std::optional<Kind> kind;
    const Gate a_done = in_task(a, [&, b]() mutable {
      b.submit_blocking([&](Alpha&) {
        b.submit([&, a](Alpha&) mutable { kind = kind_of([&] { a.submit_blocking([](Alpha&) {}); }); });
      });
    });
    REQUIRE(a_done.opens_within(never));
    b.submit_blocking([](Alpha&) {});
    REQUIRE(kind == std::nullopt);
  }
}

TEST_CASE("L10: two devices that open services on each other do not hang", "[L10]") {
  const TestDevice zero;
  const TestDevice one;
  Handle a = Handle::get(zero);
  Handle b = Handle::get(one);
  Gate a_is_in;
  Gate b_is_in;
  std::optional<Kind> from_a;
  std::optional<Kind> from_b;
  const Gate a_done = in_task(a, [&] {
    a_is_in.open();
    b_is_in.wait();
    from_a = kind_of([&] { static_cast<void>(cox::DeviceHandle<Beta>::get(one)); });
  });
  const Gate b_done = in_task(b, [&] {
    b_is_in.open();
    a_is_in.wait();
    from_b = kind_of([&] { static_cast<void>(cox::DeviceHandle<Beta>::get(zero)); });
  });
  REQUIRE(a_done.opens_within(never));
  REQUIRE(b_done.opens_within(never));
  const bool one_refused = (from_a == Kind::WouldDeadlock) != (from_b == Kind::WouldDeadlock);
  CHECK(one_refused);
}

TEST_CASE("L10: constructors of two stages that open each other get would_deadlock", "[L10]") {
  const TestDevice device;
  CHECK(kind_of([&] { static_cast<void>(cox::DeviceHandle<DownOfUp>::get(device)); }) == Kind::WouldDeadlock);
}

TEST_CASE("L10: a ring through inline devices is refused, and the others go on", "[L10]") {
  using InlineHandle = cox::InlineDeviceHandle<Alpha>;
  const TestDevice zero;
  const TestDevice one;
  InlineHandle a = InlineHandle::get(zero);
  InlineHandle b = InlineHandle::get(one);
  Gate a_is_in;
  Gate b_is_in;
  Gate done;
  std::atomic<int> refused{0};
  std::atomic<int> answered{0};
  const auto cross = [&](InlineHandle from, InlineHandle to, const Gate& mine, const Gate& other) {
    from.submit_blocking([&](Alpha&) {
      mine.open();
      other.wait();
      ++(kind_of([&] { to.submit_blocking([](Alpha&) {}); }) == Kind::WouldDeadlock ? refused : answered);
    });
    if (refused + answered == 2) done.open();
  };
  std::thread first([&] { cross(a, b, a_is_in, b_is_in); });
  std::thread second([&] { cross(b, a, b_is_in, a_is_in); });
  REQUIRE(done.opens_within(never));
  first.join();
  second.join();
  CHECK(refused == 1);
}

TEST_CASE("L10: a ring through a shutdown is refused, and the device can be shut down and opened again", "[L10]") {
  const TestDevice zero;
  const TestDevice one;
  Handle a = Handle::get(zero);
  Handle b = Handle::get(one);
  Gate b_waits;
  std::optional<Kind> from_b;
  std::optional<Kind> from_shutdown;
  const Gate a_done = in_task(a, [&] {
    b_waits.wait();
    // one's thread waits for this task to end: two tasks of zero are accepted and not ended
    if (!eventually([&] { return a.statistics().depth >= 2; })) return;
    from_shutdown = kind_of([&] { cox::shutdown(one, 20s); });
  });
  const Gate b_done = in_task(b, [&, a]() mutable {
    b_waits.open();
    from_b = kind_of([&] { a.submit_blocking([](Alpha&) {}); });
  });
  REQUIRE(a_done.opens_within(never));
  REQUIRE(b_done.opens_within(never));
  CHECK(from_shutdown == Kind::WouldDeadlock);
  CHECK(from_b == std::nullopt);
  // Refused means refused: nothing is left half shut.
  Gate reopened;
  std::thread opener([&] {
    cox::shutdown(one, 2s);
    static_cast<void>(Handle::get(one));
    reopened.open();
  });
  const bool usable = reopened.opens_within(10s);
  if (usable) {
    opener.join();
  } else {
    opener.detach();
  }
  CHECK(usable);
}

namespace {

// Its utilities die with the device thread: by then nothing may wait for that any more.
struct Watched {
  struct Utilities {
    std::shared_ptr<cox::WaitNode> waiter;
    cox::WaitNode** own;
    bool* waited_for;
    ~Utilities() {
      if (own == nullptr || *own == nullptr) return;
      std::thread([this] {  // the thread that destroys the device may be the waiter's own
        const cox::HeldNode held(**own);
        *waited_for = cox::WaitScope(*waiter).closes_cycle();
      })
          .join();
    }
  };
  explicit Watched(std::shared_ptr<const Utilities> shared) : shared_(std::move(shared)) {}
  [[nodiscard]] std::shared_ptr<const Utilities> utilities() const { return shared_; }

 private:
  std::shared_ptr<const Utilities> shared_;
};

}  // namespace

TEST_CASE("L6: a device that two threads shut down outlives the edges of the waiting graph to it", "[L10]") {
  const TestDevice zero;
  const TestDevice one;
  Handle a = Handle::get(zero);
  cox::WaitNode* own = nullptr;
  bool waited_for = false;
  Gate busy;
  Gate go_on;
  auto utilities = std::make_shared<const Watched::Utilities>(a.wait_node(), &own, &waited_for);
  std::optional b(cox::DeviceHandle<Watched>::insert(one, Watched(std::move(utilities))));
  own = b->wait_node().get();
  b->submit([busy, go_on](Watched&) {
    busy.open();
    go_on.wait();
  });
  busy.wait();
  std::thread client([&] { cox::shutdown(one, 20s); });
  const bool closing = eventually([&] { return kind_of([&] { b->submit([](Watched&) {}); }) == Kind::Closed; });
  b.reset();  // from here on the registry and the shutdowns alone own the device
  // Refused while the probe below, which holds the other end, has drawn its edge first: tried again.
  const Gate a_done = in_task(a, [&] {
    while (kind_of([&] { cox::shutdown(one, 20s); }) == Kind::WouldDeadlock) std::this_thread::yield();
  });
  // zero waits for one, so one may not wait for zero.
  const bool waits = eventually([&] {
    const cox::HeldNode held(*own);
    return cox::WaitScope(*a.wait_node()).closes_cycle();
  });
  go_on.open();
  client.join();
  REQUIRE(closing);
  REQUIRE(waits);
  REQUIRE(a_done.opens_within(never));
  CHECK_FALSE(waited_for);
}
