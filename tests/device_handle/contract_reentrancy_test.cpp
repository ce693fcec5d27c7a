// What a task may do with its own device: the matrix of the design's section 4. One suite, both handles.

#include <coxswain/tests/device_handle/contract.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <stdexcept>

using namespace contract;

namespace {

struct OpensBeta {
  explicit OpensBeta(cox::DeviceId id)
      : value(cox::DeviceHandle<Beta>::get(id).submit_blocking([](Beta& b) { return ++b.value; })) {}
  int value;
};
struct OpensBetaInline {
  explicit OpensBetaInline(cox::DeviceId id)
      : value(cox::InlineDeviceHandle<Beta>::get(id).submit_blocking([](Beta& b) { return ++b.value; })) {}
  int value;
};
template <class T>
using Opener = std::conditional_t<std::is_same_v<T, Threaded>, OpensBeta, OpensBetaInline>;

template <class Suite>
struct OpensItself {
  explicit OpensItself(cox::DeviceId id) { static_cast<void>(Suite::template Handle<OpensItself>::get(id)); }
};

using Order = std::vector<std::string>;

}  // namespace

TEMPLATE_TEST_CASE("From a task, submit to its own and to another service queues behind what is there", "[contract]",
                   Threaded, Inline) {
  const TestDevice device;
  auto a = TestType::template Handle<Alpha>::get(device);
  auto b = TestType::template Handle<Beta>::get(device);
  Order order;
  a.submit_blocking([&](Alpha&) {
    a.submit([&](Alpha&) {
      order.emplace_back("first");
      a.submit([&](Alpha&) { order.emplace_back("fourth"); });
    });
    b.submit([&](Beta&) { order.emplace_back("second"); });
    a.submit([&](Alpha&) { order.emplace_back("third"); });
    order.emplace_back("task");
  });
  a.submit_blocking([](Alpha&) {});
  a.submit_blocking([](Alpha&) {});
  CHECK(order == Order{"task", "first", "second", "third", "fourth"});
}

TEST_CASE("From a task, submit queues behind what clients have queued", "[contract]") {
  const TestDevice device;
  auto a = cox::DeviceHandle<Alpha>::get(device);
  auto b = cox::DeviceHandle<Beta>::get(device);
  Order order;
  {
    const Occupied occupied(a);
    a.submit([&](Alpha&) {
      order.emplace_back("task");
      b.submit([&](Beta&) { order.emplace_back("from the task"); });
    });
    std::thread([&] { b.submit([&](Beta&) { order.emplace_back("from another thread"); }); }).join();
    a.submit([&](Alpha&) { order.emplace_back("from this thread"); });
  }
  a.submit_blocking([](Alpha&) {});  // the task has run and submitted
  a.submit_blocking([](Alpha&) {});  // what it submitted has run
  CHECK(order == Order{"task", "from another thread", "from this thread", "from the task"});
}

TEMPLATE_TEST_CASE("From a task, submit_blocking to another service runs at once, ahead of the queue", "[contract]",
                   Threaded, Inline) {
  const TestDevice device;
  auto a = TestType::template Handle<Alpha>::get(device);
  auto b = TestType::template Handle<Beta>::get(device);
  Order order;
  a.submit_blocking([&](Alpha&) {
    const auto thread = std::this_thread::get_id();
    b.submit([&](Beta&) { order.emplace_back("queued"); });
    const bool same = b.submit_blocking([&](Beta&) {
      order.emplace_back("at once");
      return std::this_thread::get_id() == thread;
    });
    order.emplace_back(same ? "task" : "another thread");
    CHECK_THROWS_AS(b.submit_blocking([](Beta&) { throw std::out_of_range("b"); }), std::out_of_range);
  });
  b.submit_blocking([](Beta&) {});
  CHECK(order == Order{"at once", "task", "queued"});
}

TEMPLATE_TEST_CASE("L10: from a task, submit_blocking to its own service throws would_deadlock", "[contract]", Threaded,
                   Inline) {
  const TestDevice device;
  auto a = TestType::template Handle<Alpha>::get(device);
  auto b = TestType::template Handle<Beta>::get(device);
  const auto kinds = a.submit_blocking([&](Alpha&) {
    bool ran = false;
    std::vector<std::optional<Kind>> seen;
    seen.push_back(kind_of([&] { a.submit_blocking([&](Alpha&) { ran = true; }); }));
    seen.push_back(kind_of([&] { a.submit_blocking([&](Alpha&) { ran = true; }, cox::CallOptions{}); }));
    seen.push_back(
        b.submit_blocking([&](Beta&) { return kind_of([&] { a.submit_blocking([&](Alpha&) { ran = true; }); }); }));
    seen.push_back(kind_of([&] { a.exclusive([&] { a.submit_blocking([&](Alpha&) { ran = true; }); }); }));
    if (ran) seen.clear();
    return seen;
  });
  CHECK(kinds == std::vector<std::optional<Kind>>(4, Kind::WouldDeadlock));
  CHECK(a.submit_blocking([](Alpha&) { return 1; }) == 1);
  CHECK(b.submit_blocking([](Beta&) { return 1; }) == 1);
}

TEMPLATE_TEST_CASE("Inside exclusive everything runs inline, in order", "[contract]", Threaded, Inline) {
  const TestDevice device;
  auto a = TestType::template Handle<Alpha>::get(device);
  auto b = TestType::template Handle<Beta>::get(device);
  const Order order = a.exclusive([&] {
    Order seen;
    a.submit([&](Alpha&) { seen.emplace_back("submit a"); });
    seen.emplace_back("1");
    b.submit([&](Beta&) { seen.emplace_back("submit b"); }, cox::CallOptions{});
    seen.emplace_back("2");
    a.submit_blocking([&](Alpha&) { seen.emplace_back("blocking a"); });
    b.exclusive([&] { b.submit([&](Beta&) { seen.emplace_back("nested"); }); });
    seen.emplace_back("3");
    auto c = TestType::template Handle<Service<2>>::get(device);
    c.submit([&](Service<2>&) { seen.emplace_back("new service"); });
    return seen;
  });
  CHECK(order == Order{"submit a", "1", "submit b", "2", "blocking a", "nested", "3", "new service"});
}

TEMPLATE_TEST_CASE(
    "L1: inside exclusive, what a task submits to its own service runs before what is submitted after it", "[contract]",
    Threaded, Inline) {
  const TestDevice device;
  auto a = TestType::template Handle<Alpha>::get(device);
  Order order;
  a.exclusive([&] {
    a.submit_blocking([&](Alpha&) { a.submit([&](Alpha&) { order.emplace_back("first"); }); });
    a.submit([&](Alpha&) { order.emplace_back("second"); });
  });
  a.submit_blocking([](Alpha&) {});
  CHECK(order == Order{"first", "second"});
}

TEMPLATE_TEST_CASE("L1: an exclusive inside a task does not run what the task has submitted before", "[contract]",
                   Threaded, Inline) {
  const TestDevice device;
  auto a = TestType::template Handle<Alpha>::get(device);
  auto b = TestType::template Handle<Beta>::get(device);
  Order order;
  a.exclusive([&] {
    a.submit_blocking([&](Alpha&) {
      a.submit([&](Alpha&) { order.emplace_back("first"); });
      b.exclusive([&] { b.submit([&](Beta&) { order.emplace_back("inner"); }); });
      order.emplace_back("end of the task");
    });
    a.submit([&](Alpha&) { order.emplace_back("second"); });
  });
  a.submit_blocking([](Alpha&) {});
  CHECK(order == Order{"inner", "end of the task", "first", "second"});
}

TEMPLATE_TEST_CASE("Nobody else's task runs between the calls of an exclusive", "[contract]", Threaded, Inline) {
  const TestDevice device;
  auto a = TestType::template Handle<Alpha>::get(device);
  std::atomic<bool> stop{false};
  std::thread other([&, a]() mutable {
    while (!stop) a.submit_blocking([](Alpha& alpha) { alpha.order.push_back(-1); });
  });
  for (int i = 0; i < scaled(2000); ++i) {
    const auto inside = a.exclusive([&] {
      a.submit([](Alpha& alpha) { alpha.order.clear(); });
      a.submit([](Alpha& alpha) { alpha.order.push_back(1); });
      return a.submit_blocking([](Alpha& alpha) { return alpha.order; });
    });
    REQUIRE(inside == std::vector{1});
  }
  stop = true;
  other.join();
}

TEMPLATE_TEST_CASE("From a task, exclusive runs inline; after an exclusive that throws, submit queues again",
                   "[contract]", Threaded, Inline) {
  const TestDevice device;
  auto a = TestType::template Handle<Alpha>::get(device);
  auto b = TestType::template Handle<Beta>::get(device);
  Order order;
  a.submit_blocking([&](Alpha&) {
    order.emplace_back("before");
    CHECK_THROWS_AS(b.exclusive([&] {
      order.emplace_back("exclusive");
      throw std::out_of_range("x");
    }),
                    std::out_of_range);
    b.submit([&](Beta&) { order.emplace_back("queued"); });
    order.emplace_back("after");
  });
  b.submit_blocking([](Beta&) {});
  CHECK(order == Order{"before", "exclusive", "after", "queued"});
}

TEMPLATE_TEST_CASE("An exclusive of one device that visits another reaches its own services", "[contract]", Threaded,
                   Inline) {
  const TestDevice here;
  const TestDevice there;
  auto a = TestType::template Handle<Alpha>::get(here);
  auto other = TestType::template Handle<Alpha>::get(there);
  a.exclusive([&] {
    other.submit_blocking([&](Alpha&) { a.submit([](Alpha& alpha) { alpha.value = alpha.device.index + 1; }); });
  });
  CHECK(a.submit_blocking([](Alpha& alpha) { return alpha.value; }) == here.id().index + 1);
  CHECK(other.submit_blocking([](Alpha& alpha) { return alpha.value; }) == 0);
}

TEMPLATE_TEST_CASE("A task of one device visits another that has no such service", "[contract]", Threaded, Inline) {
  const TestDevice here;
  const TestDevice there;
  auto a = TestType::template Handle<Alpha>::get(here);
  auto other = TestType::template Handle<Beta>::get(there);
  Gate ran;
  a.submit_blocking([&](Alpha&) { other.submit_blocking([&](Beta&) { a.submit([ran](Alpha&) { ran.open(); }); }); });
  CHECK(ran.opens_within(never));
}

TEMPLATE_TEST_CASE("A task opens a service that is not known yet", "[contract]", Threaded, Inline) {
  const TestDevice device;
  auto a = TestType::template Handle<Alpha>::get(device);
  const int value = a.submit_blocking([&](Alpha&) {
    auto b = TestType::template Handle<Beta>::get(device);
    return b.submit_blocking([](Beta& beta) { return ++beta.value; });
  });
  CHECK(value == 1);
  CHECK(TestType::template Handle<Beta>::get(device).submit_blocking([](Beta& beta) { return ++beta.value; }) == 2);
}

TEMPLATE_TEST_CASE("A task opens a service on another device", "[contract]", Threaded, Inline) {
  const TestDevice device;
  const TestDevice other;
  auto a = TestType::template Handle<Alpha>::get(device);
  CHECK(a.submit_blocking([&](Alpha&) {
    return TestType::template Handle<Alpha>::get(other).submit_blocking([](Alpha& there) { return there.device; });
  }) == other.id());
}

TEMPLATE_TEST_CASE("A constructor opens another service and calls it", "[contract]", Threaded, Inline) {
  const TestDevice device;
  using S = Opener<TestType>;
  CHECK(TestType::template Handle<S>::get(device).submit_blocking([](S& s) { return s.value; }) == 1);
  CHECK(TestType::template Handle<Beta>::get(device).submit_blocking([](Beta& beta) { return beta.value; }) == 1);
}

TEMPLATE_TEST_CASE("L10: a constructor that opens its own service gets would_deadlock", "[contract]", Threaded,
                   Inline) {
  const TestDevice device;
  using S = OpensItself<TestType>;
  CHECK(kind_of([&] { static_cast<void>(TestType::template Handle<S>::get(device)); }) == Kind::WouldDeadlock);
  CHECK(TestType::template Handle<Alpha>::get(device).submit_blocking([](Alpha&) { return 1; }) == 1);
}
