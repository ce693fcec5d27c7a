// L6: how long closures live, where they die, and what they may hold. One suite, both handles.

#include <coxswain/tests/device_handle/contract.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <array>
#include <cstdint>
#include <stdexcept>
#include <utility>
#include <vector>

using namespace contract;

namespace {

/// A move-only capture of N bytes that counts how many of its kind are alive.
template <std::size_t size, std::size_t alignment = 1>
class Cargo {
 public:
  Cargo() {
    for (std::size_t i = 0; i < size; ++i) bytes_[i] = static_cast<std::uint8_t>(i * 7 + 1);
    ++alive;
  }
  Cargo(Cargo&& other) noexcept : bytes_(other.bytes_) { ++alive; }
  Cargo& operator=(Cargo&&) = delete;
  ~Cargo() { --alive; }

  [[nodiscard]] bool intact() const {
    for (std::size_t i = 0; i < size; ++i) {
      if (bytes_[i] != static_cast<std::uint8_t>(i * 7 + 1)) return false;
    }
    return reinterpret_cast<std::uintptr_t>(this) % alignment == 0;
  }

  static inline std::atomic<int> alive{0};

 private:
  alignas(alignment) std::array<std::uint8_t, size> bytes_;
};

template <class Suite, std::size_t size, std::size_t alignment = 1>
void carry() {
  using Kind = Cargo<size, alignment>;
  INFO(size << " bytes aligned to " << alignment);
  {
    const TestDevice device;
    auto handle = Suite::template Handle<Alpha>::get(device);
    std::atomic<int> intact{0};
    for (int i = 0; i < 3; ++i) {
      handle.submit([cargo = Kind(), &intact](Alpha&) { intact += cargo.intact() ? 1 : 0; });
    }
    handle.submit_blocking([](Alpha&) {});
    CHECK(intact == 3);
    CHECK(Kind::alive == 0);
    handle.submit([cargo = Kind()](Alpha&) { throw std::runtime_error("with cargo"); }, cox::CallOptions{});
    handle.submit_blocking([](Alpha&) {});
    CHECK(Kind::alive == 0);
  }
}

}  // namespace

TEMPLATE_TEST_CASE("L6: move-only captures of 1 byte to 256 KiB arrive whole and are destroyed exactly once",
                   "[contract]", Threaded, Inline) {
  cox::set_task_error_callback([](const cox::TaskError&) {});
  carry<TestType, 1>();
  carry<TestType, 32>();
  carry<TestType, 33>();
  carry<TestType, 40>();
  carry<TestType, 41>();
  carry<TestType, 1000>();
  carry<TestType, 4096>();
  carry<TestType, 5000>();
  carry<TestType, 1U << 18U>();
  cox::set_task_error_callback({});
}

TEMPLATE_TEST_CASE("L6: over-aligned captures lie where they must", "[contract]", Threaded, Inline) {
  cox::set_task_error_callback([](const cox::TaskError&) {});
  carry<TestType, 16, 16>();
  carry<TestType, 64, 64>();
  carry<TestType, 128, 128>();
  carry<TestType, 4096, 4096>();
  cox::set_task_error_callback({});
}

TEMPLATE_TEST_CASE("L6: a blocking closure is destroyed on the device thread before the caller wakes", "[contract]",
                   Threaded, Inline) {
  const TestDevice device;
  auto handle = TestType::template Handle<Alpha>::get(device);
  const auto thread = handle.submit_blocking([](Alpha&) { return std::this_thread::get_id(); });
  CHECK((thread == std::this_thread::get_id()) == handle.is_blocking());
  for (int i = 0; i < 1000; ++i) {
    const Fate fate;
    if (i % 3 == 0) {
      handle.submit_blocking([ticket = fate.ticket()](Alpha&) {});
    } else if (i % 3 == 1) {
      CHECK_THROWS(handle.submit_blocking([ticket = fate.ticket()](Alpha&) { throw 1; }));
    } else {
      handle.exclusive([ticket = fate.ticket()] {});
    }
    REQUIRE(fate.deaths() == 1);
    REQUIRE(fate.thread() == thread);
  }
}

TEMPLATE_TEST_CASE("L6: so is one with options", "[contract]", Threaded, Inline) {
  const TestDevice device;
  auto handle = TestType::template Handle<Alpha>::get(device);
  const auto thread = handle.submit_blocking([](Alpha&) { return std::this_thread::get_id(); });
  for (int i = 0; i < 1000; ++i) {
    const Fate fate;
    handle.submit_blocking([ticket = fate.ticket()](Alpha&) {}, before(std::chrono::steady_clock::now() + 1h));
    REQUIRE(fate.deaths() == 1);
    REQUIRE(fate.thread() == thread);
  }
}

TEMPLATE_TEST_CASE("L6: a fire-and-forget closure is destroyed on the device thread before the next task runs",
                   "[contract]", Threaded, Inline) {
  const TestDevice device;
  auto handle = TestType::template Handle<Alpha>::get(device);
  const auto thread = handle.submit_blocking([](Alpha&) { return std::this_thread::get_id(); });
  for (int i = 0; i < 100; ++i) {
    const Fate plain;
    const Fate guarded;
    handle.submit([ticket = plain.ticket()](Alpha&) {});
    handle.submit([&](Alpha& alpha) { alpha.value = plain.deaths(); });
    CHECK(handle.submit_blocking([](Alpha& alpha) { return alpha.value; }) == 1);
    handle.submit([ticket = guarded.ticket()](Alpha&) {}, before(std::chrono::steady_clock::now() + 1h));
    handle.submit([&](Alpha& alpha) { alpha.value = guarded.deaths(); });
    CHECK(handle.submit_blocking([](Alpha& alpha) { return alpha.value; }) == 1);
    CHECK(plain.thread() == thread);
    CHECK(guarded.thread() == thread);
  }
}

TEMPLATE_TEST_CASE("L6: a capture's destructor may itself submit", "[contract]", Threaded, Inline) {
  const TestDevice device;
  using Handle = typename TestType::template Handle<Alpha>;
  auto handle = Handle::get(device);
  Gate ran;
  std::shared_ptr<void> last_words(nullptr,
                                   [handle, ran](void*) mutable { handle.submit([ran](Alpha&) { ran.open(); }); });
  handle.submit([held = std::move(last_words)](Alpha&) {});
  CHECK(ran.opens_within(never));
}

TEMPLATE_TEST_CASE("A closure's destructor runs under the submitter's StreamId too", "[contract]", Threaded, Inline) {
  const TestDevice device;
  auto handle = TestType::template Handle<Alpha>::get(device);
  const cox::StreamId stream = cox::StreamId::allocate();
  std::atomic<std::uint64_t> seen{0};
  stream.executes([&] {
    handle.submit(
        [held = std::shared_ptr<void>(nullptr, [&](void*) { seen = cox::StreamId::current().value; })](Alpha&) {});
  });
  handle.submit_blocking([](Alpha&) {});
  CHECK(seen == stream.value);
}

namespace {

/// A capture that counts how often it was copied and moved.
struct Travels {
  int copies = 0;
  int moves = 0;
};
class Traveller {
 public:
  explicit Traveller(Travels& travels) : travels_(&travels) {}
  Traveller(const Traveller& other) : travels_(other.travels_) { ++travels_->copies; }
  Traveller(Traveller&& other) noexcept : travels_(std::exchange(other.travels_, nullptr)) { ++travels_->moves; }
  Traveller& operator=(Traveller&&) = delete;
  ~Traveller() = default;

  [[nodiscard]] bool here() const { return travels_ != nullptr; }

 private:
  Travels* travels_;
};

}  // namespace

TEMPLATE_TEST_CASE("A closure is moved once to its place in the queue, or made there; whoever is refused keeps it",
                   "[contract]", Threaded, Inline) {
  const TestDevice device;
  auto handle = TestType::template Handle<Alpha>::get(device);
  Travels moved;
  Travels copied;
  Travels made;
  Travels large;
  int arrived = 0;
  const auto closure = [&](Travels& travels) {
    return [traveller = Traveller(travels), &arrived](Alpha&) { arrived += traveller.here() ? 1 : 0; };
  };
  handle.submit(closure(moved));
  const auto kept = closure(copied);
  handle.submit(kept);
  handle.submit_in_place([&] { return closure(made); });
  handle.submit_in_place([&] {
    return [traveller = Traveller(large), bytes = std::array<char, 5000>(), &arrived](Alpha&) {
      arrived += traveller.here() && bytes.back() == 0 ? 1 : 0;
    };
  });
  handle.submit_blocking([](Alpha&) {});
  CHECK(arrived == 4);
  CHECK((moved.copies == 0 && moved.moves == 1));
  CHECK((copied.copies == 1 && copied.moves == 1));
  CHECK((made.copies == 0 && made.moves == 0));
  CHECK((large.copies == 0 && large.moves == 0));

  device.close();
  Travels refused;
  auto late = closure(refused);
  CHECK_THROWS_AS(handle.submit(std::move(late)), cox::CallError);
  bool asked = false;
  CHECK_THROWS_AS(handle.submit_in_place([&] {
    asked = true;
    return [](Alpha&) {};
  }),
                  cox::CallError);
  CHECK((refused.copies == 0 && refused.moves == 0));
  CHECK(!asked);
}

TEMPLATE_TEST_CASE("What is made in its place runs in order, also from inside tasks and exclusive", "[contract]",
                   Threaded, Inline) {
  const TestDevice device;
  auto handle = TestType::template Handle<Alpha>::get(device);
  std::vector<int> order;
  const auto note = [&](int number) {
    handle.submit_in_place([&, number] { return [&order, number](Alpha&) { order.push_back(number); }; });
  };
  note(1);
  handle.submit([&](Alpha&) {
    note(3);
    order.push_back(2);
  });
  handle.submit_blocking([](Alpha&) {});
  handle.exclusive([&] {
    note(4);
    handle.submit([&](Alpha&) {
      note(6);  // runs when this task has ended
      order.push_back(5);
    });
    note(7);
  });
  CHECK(order == std::vector<int>{1, 2, 3, 4, 5, 6, 7});
}

TEMPLATE_TEST_CASE("What a maker throws is the caller's, and nothing was queued", "[contract]", Threaded, Inline) {
  const TestDevice device;
  auto handle = TestType::template Handle<Alpha>::get(device);
  int ran = 0;
  const auto fails = [&]() {
    if (ran == 0) throw std::runtime_error("it cannot be made");
    return [&](Alpha&) { ++ran; };
  };
  CHECK_THROWS_AS(handle.submit_in_place(fails), std::runtime_error);
  handle.exclusive([&] {
    CHECK_THROWS_AS(handle.submit_in_place(fails), std::runtime_error);
    handle.submit([&](Alpha&) { CHECK_THROWS_AS(handle.submit_in_place(fails), std::runtime_error); });
  });
  handle.submit([&](Alpha&) { ++ran; });
  handle.submit_blocking([](Alpha&) {});
  CHECK(ran == 1);
  handle.submit_in_place(fails);
  handle.submit_blocking([](Alpha&) {});
  CHECK(ran == 2);
  CHECK(handle.statistics().accepted == handle.statistics().completed);
}

TEMPLATE_TEST_CASE("L6: inside exclusive, closures of any size run once, intact, and are gone right after",
                   "[contract]", Threaded, Inline) {
  const TestDevice device;
  auto handle = TestType::template Handle<Alpha>::get(device);
  std::vector<bool> intact;
  const auto run_inside = [&]<std::size_t size, std::size_t alignment>(Cargo<size, alignment>) {
    using Kind = Cargo<size, alignment>;
    intact.clear();
    handle.exclusive([&] {
      handle.submit([&, cargo = Kind()](Alpha&) {
        handle.submit([&, inner = Kind()](Alpha&) { intact.push_back(inner.intact()); });  // when this task has ended
        CHECK(intact.empty());
        intact.push_back(cargo.intact());
      });
      CHECK(intact == std::vector<bool>{true, true});
      CHECK(Kind::alive == 1);  // the argument
    });
  };
  run_inside(Cargo<8>());
  run_inside(Cargo<2'000>());
  run_inside(Cargo<10'000>());
  run_inside(Cargo<64, 128>());
}
