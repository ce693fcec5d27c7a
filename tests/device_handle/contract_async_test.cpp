// submit_async with every kind of Asio completion token. One suite, both handles.

#include <coxswain/tests/device_handle/contract.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/deferred.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/use_future.hpp>

#include <atomic>
#include <exception>
#include <future>
#include <memory>
#include <stdexcept>

using namespace contract;
namespace asio = boost::asio;

TEMPLATE_TEST_CASE("submit_async: a future gets the value, nothing, or what was thrown", "[contract]", Threaded,
                   Inline) {
  const TestDevice device;
  auto handle = TestType::template Handle<Alpha>::get(device);
  CHECK(handle.submit_async([](Alpha&) { return 5; }, asio::use_future).get() == 5);
  CHECK(*handle.submit_async([](Alpha&) { return std::make_unique<int>(6); }, asio::use_future).get() == 6);
  std::future<void> nothing = handle.submit_async([](Alpha& alpha) { alpha.value = 7; }, asio::use_future);
  nothing.get();
  CHECK(handle.submit_blocking([](Alpha& alpha) { return alpha.value; }) == 7);
  auto failing = handle.submit_async([](Alpha&) -> int { throw std::out_of_range("async"); }, asio::use_future);
  CHECK_THROWS_AS(failing.get(), std::out_of_range);
  const auto statistics = at_rest(handle);
  CHECK(statistics.failed == 1);
  CHECK(conserved(statistics));
}

TEMPLATE_TEST_CASE("submit_async: a callback gets its answer off the device thread, with the caller's StreamId",
                   "[contract]", Threaded, Inline) {
  const TestDevice device;
  auto handle = TestType::template Handle<Alpha>::get(device);
  const auto device_thread = handle.submit_blocking([](Alpha&) { return std::this_thread::get_id(); });
  const cox::StreamId stream = cox::StreamId::allocate();
  std::promise<std::pair<std::thread::id, cox::StreamId>> seen;
  stream.executes([&] {
    handle.submit_async([](Alpha&) { return 1; },
                        [&](const std::exception_ptr&, int) {
                          seen.set_value({std::this_thread::get_id(), cox::StreamId::current()});
                        });
  });
  const auto [thread, id] = seen.get_future().get();
  CHECK(thread != device_thread);
  CHECK(id == stream);
}

TEMPLATE_TEST_CASE("submit_async: a handler that is an lvalue is copied and may be used again", "[contract]", Threaded,
                   Inline) {
  const TestDevice device;
  auto handle = TestType::template Handle<Alpha>::get(device);
  const auto sum = std::make_shared<std::atomic<int>>(0);
  const auto calls = std::make_shared<std::atomic<int>>(0);
  auto handler = [sum, calls](const std::exception_ptr&, int value) {
    *sum += value;
    ++*calls;
  };
  handle.submit_async([](Alpha&) { return 1; }, handler);
  handle.submit_async([](Alpha&) { return 2; }, {}, handler);
  REQUIRE(eventually([&] { return *calls == 2; }));
  CHECK(*sum == 3);
}

TEMPLATE_TEST_CASE("submit_async: the handler runs on its own executor", "[contract]", Threaded, Inline) {
  const TestDevice device;
  auto handle = TestType::template Handle<Alpha>::get(device);
  asio::io_context context;
  std::thread::id thread;
  int value = 0;
  handle.submit_async([](Alpha&) { return 8; },
                      asio::bind_executor(context, [&](const std::exception_ptr&, int result) {
                        value = result;
                        thread = std::this_thread::get_id();
                      }));
  context.run();  // returns when the handler has run: the call counts as work of the context until then
  CHECK(value == 8);
  CHECK(thread == std::this_thread::get_id());
}

TEMPLATE_TEST_CASE("submit_async: deferred starts when it is launched, once", "[contract]", Threaded, Inline) {
  const TestDevice device;
  auto handle = TestType::template Handle<Alpha>::get(device);
  auto later = handle.submit_async([](Alpha& alpha) { return ++alpha.value; }, asio::deferred);
  CHECK(handle.submit_blocking([](Alpha& alpha) { return alpha.value; }) == 0);
  CHECK(std::move(later)(asio::use_future).get() == 1);
}

TEMPLATE_TEST_CASE("L9: a coroutine keeps its StreamId across an await of ours", "[contract]", Threaded, Inline) {
  const TestDevice device;
  auto handle = TestType::template Handle<Alpha>::get(device);
  asio::io_context context;
  const auto mine = cox::StreamId::current();
  const cox::StreamId stream = cox::StreamId::allocate();
  std::vector<cox::StreamId> seen;
  const auto coroutine = [&]() -> asio::awaitable<int> {
    seen.push_back(cox::StreamId::current());
    seen.push_back(co_await handle.submit_async([](Alpha&) { return cox::StreamId::current(); }, asio::use_awaitable));
    seen.push_back(cox::StreamId::current());
    co_await handle.submit_async([](Alpha&) {}, asio::use_awaitable);
    seen.push_back(cox::StreamId::current());
    try {
      co_await handle.submit_async([](Alpha&) -> int { throw std::out_of_range("awaited"); }, asio::use_awaitable);
    } catch (const std::out_of_range&) {
      seen.push_back(cox::StreamId::current());
    }
    co_return co_await handle.submit_async([](Alpha&) { return 3; }, asio::use_awaitable);
  };
  auto result = stream.executes([&] {
    auto future = asio::co_spawn(context, coroutine, asio::use_future);
    context.poll_one();  // up to the first await
    return future;
  });
  context.run();
  CHECK(result.get() == 3);
  CHECK(seen == std::vector<cox::StreamId>(5, stream));
  CHECK(cox::StreamId::current() == mine);
}

TEMPLATE_TEST_CASE("submit_async: the closure is dead before its answer is known, and the answer comes once",
                   "[contract]", Threaded, Inline) {
  const TestDevice device;
  auto handle = TestType::template Handle<Alpha>::get(device);
  for (int i = 0; i < 500; ++i) {
    const Fate fate;
    handle.submit_async([ticket = fate.ticket()](Alpha&) {}, asio::use_future).get();
    REQUIRE(fate.deaths() == 1);
  }
}

TEMPLATE_TEST_CASE("submit_async: options count", "[contract]", Threaded, Inline) {
  const TestDevice device;
  auto handle = TestType::template Handle<Alpha>::get(device);
  const auto past = before(std::chrono::steady_clock::now() - 1s);
  auto expired = handle.submit_async([](Alpha&) { return 1; }, past, asio::use_future);
  CHECK(kind_of([&] { expired.get(); }) == Kind::Expired);
  std::stop_source stop;
  stop.request_stop();
  auto cancelled = handle.submit_async([](Alpha&) {}, unless(stop.get_token()), asio::use_future);
  CHECK(kind_of([&] { cancelled.get(); }) == Kind::Cancelled);
  CHECK(conserved(at_rest(handle)));
}

TEMPLATE_TEST_CASE("submit_async: inside exclusive the task runs inline", "[contract]", Threaded, Inline) {
  const TestDevice device;
  auto handle = TestType::template Handle<Alpha>::get(device);
  std::future<int> future;
  const bool ran = handle.exclusive([&] {
    bool inside = false;
    future = handle.submit_async(
        [&](Alpha&) {
          inside = true;
          return 2;
        },
        asio::use_future);
    return inside;
  });
  CHECK(ran);
  CHECK(future.get() == 2);
}

TEMPLATE_TEST_CASE("L4: submit_async on a device that was shut down completes its token with closed", "[contract]",
                   Threaded, Inline) {
  const TestDevice device;
  auto handle = TestType::template Handle<Alpha>::get(device);
  device.close();
  const Fate fate;
  auto answer = handle.submit_async([ticket = fate.ticket()](Alpha&) {}, asio::use_future);
  CHECK(kind_of([&] { answer.get(); }) == Kind::Closed);
  CHECK(fate.deaths() == 1);
  auto with_options = handle.submit_async([ticket = fate.ticket()](Alpha&) { return 1; }, {}, asio::use_future);
  CHECK(kind_of([&] { with_options.get(); }) == Kind::Closed);
  CHECK(fate.deaths() == 2);
}

TEMPLATE_TEST_CASE("L4: a refused submit_async never calls its handler inside the call", "[contract]", Threaded,
                   Inline) {
  const TestDevice device;
  auto handle = TestType::template Handle<Alpha>::get(device);
  device.close();
  asio::io_context context;
  std::optional<Kind> kind;
  handle.submit_async([](Alpha&) { return 1; }, asio::bind_executor(context, [&](const std::exception_ptr& error, int) {
                        kind = kind_of([&] { std::rethrow_exception(error); });
                      }));
  CHECK(kind == std::nullopt);
  context.run();
  CHECK(kind == Kind::Closed);
}

TEMPLATE_TEST_CASE("L4: a coroutine that calls a device which is shut down catches closed at its co_await",
                   "[contract]", Threaded, Inline) {
  const TestDevice device;
  auto handle = TestType::template Handle<Alpha>::get(device);
  asio::io_context context;
  std::optional<Kind> kind;
  std::optional<Kind> with_options;
  asio::co_spawn(
      context,
      [&]() -> asio::awaitable<void> {
        CHECK(co_await handle.submit_async([](Alpha&) { return 1; }, asio::use_awaitable) == 1);
        device.close();
        try {
          co_await handle.submit_async([](Alpha&) {}, asio::use_awaitable);
        } catch (const cox::CallError& error) {
          kind = error.kind();
        }
        try {
          co_await handle.submit_async([](Alpha&) { return 2; }, cox::CallOptions{}, asio::use_awaitable);
        } catch (const cox::CallError& error) {
          with_options = error.kind();
        }
      },
      asio::detached);
  context.run();
  CHECK(kind == Kind::Closed);
  CHECK(with_options == Kind::Closed);
}

TEST_CASE("L10: a submit_async that would deadlock completes its token with would_deadlock", "[contract]") {
  const TestDevice zero;
  const TestDevice one;
  auto a = cox::InlineDeviceHandle<Alpha>::get(zero);
  auto b = cox::InlineDeviceHandle<Alpha>::get(one);
  // Whichever of the two calls comes second is refused. Each round leaves the other thread more time to be the first.
  bool refused = false;
  for (int round = 0; round < 10'000 && !refused; ++round) {
    Gate in_a;
    Gate in_b;
    std::optional<Kind> kind;
    std::optional<Kind> kind_of_other;
    std::thread other([&] {
      b.submit([&](Alpha&) {
        in_b.open();
        in_a.wait();
        kind_of_other = kind_of([&] { a.submit([](Alpha&) {}); });  // waits for the thread that is in a
      });
    });
    a.submit([&](Alpha&) {
      in_a.open();
      in_b.wait();
      for (int i = 0; i < round; ++i) std::this_thread::yield();
      auto answer = b.submit_async([](Alpha&) { return 1; }, asio::use_future);
      kind = kind_of([&] { answer.get(); });
    });
    other.join();
    refused = kind == Kind::WouldDeadlock;
    REQUIRE(refused != (kind_of_other == Kind::WouldDeadlock));
  }
  CHECK(refused);
}

TEST_CASE("At capacity submit_async completes its token with queue_full under Fail, and exceeds it under Block",
          "[contract]") {
  for (const bool with_options : {false, true}) {
    for (const auto policy : {cox::QueuePolicy::Fail, cox::QueuePolicy::Block}) {
      cox::DeviceThreadOptions options;
      options.queue_policy = policy;
      options.queue_capacity = 4;
      const TestDevice device(options);
      auto handle = cox::DeviceHandle<Alpha>::get(device);
      std::vector<std::future<int>> answers;
      Gate returned;
      const Occupied occupied(handle);
      std::thread caller([&] {  // so that a call that blocks is a failure and not a hang
        for (int i = 0; i < 20; ++i) {
          answers.push_back(with_options
                                ? handle.submit_async([](Alpha&) { return 1; }, cox::CallOptions{}, asio::use_future)
                                : handle.submit_async([](Alpha&) { return 1; }, asio::use_future));
        }
        returned.open();
      });
      const bool at_once = returned.opens_within(5s);
      occupied.release();
      caller.join();
      REQUIRE(at_once);
      int ran = 0;
      int full = 0;
      for (auto& answer : answers) {
        const auto kind = kind_of([&] { answer.get(); });
        if (!kind) ++ran;
        if (kind == Kind::QueueFull) ++full;
      }
      CHECK(ran + full == 20);
      CHECK((full != 0) == (policy == cox::QueuePolicy::Fail));
    }
  }
}

namespace {

// Copying it throws from the second time on.
struct ThrowsWhenCopied {
  ThrowsWhenCopied() = default;
  ThrowsWhenCopied(const ThrowsWhenCopied& other) : copies(other.copies) {
    if (++*copies == 2) throw std::bad_alloc();
  }
  ThrowsWhenCopied& operator=(const ThrowsWhenCopied&) = delete;
  ~ThrowsWhenCopied() = default;
  std::shared_ptr<int> copies = std::make_shared<int>(0);
};

// An executor whose first `failures` posts throw.
template <class Inner>
struct FailingExecutor {
  Inner inner;
  std::shared_ptr<std::atomic<int>> failures;

  template <class F>
  void execute(F&& f) const {
    if (failures->fetch_sub(1) > 0) throw std::bad_alloc();
    inner.execute(std::forward<F>(f));
  }
  template <class Property>
    requires asio::can_query<const Inner&, Property>::value
  decltype(auto) query(const Property& property) const {
    return asio::query(inner, property);
  }
  template <class Property>
    requires asio::can_require<const Inner&, Property>::value
  auto require(const Property& property) const {
    auto required = asio::require(inner, property);
    return FailingExecutor<decltype(required)>{std::move(required), failures};
  }
  friend bool operator==(const FailingExecutor&, const FailingExecutor&) noexcept = default;
};

}  // namespace

TEST_CASE("L5: submit_async: a result whose move throws reaches the handler", "[contract]") {
  const TestDevice device;
  auto handle = cox::DeviceHandle<Alpha>::get(device);
  Gate called;
  handle.submit_async([](Alpha&) { return ThrowsWhenCopied(); },
                      [called](const std::exception_ptr&, const ThrowsWhenCopied&) { called.open(); });
  CHECK(called.opens_within(never));
  CHECK(handle.submit_blocking([](Alpha&) { return 1; }) == 1);
}

TEST_CASE("L2: submit_async: a post that fails once delays the handler, one that always fails is reported",
          "[contract]") {
  const TestDevice device;
  auto handle = cox::DeviceHandle<Alpha>::get(device);
  asio::io_context context;
  const FailingExecutor<asio::io_context::executor_type> executor{context.get_executor(),
                                                                  std::make_shared<std::atomic<int>>(0)};
  std::atomic<int> reported{0};
  cox::set_task_error_callback([&](const cox::TaskError&) { ++reported; });
  for (const int failures : {1, 2}) {
    *executor.failures = failures;
    bool called = false;
    const Fate fate;
    handle.submit_async(
        [](Alpha&) { return 7; },
        asio::bind_executor(executor, [&, ticket = fate.ticket()](const std::exception_ptr& error, int value) {
          called = error == nullptr && value == 7;
        }));
    handle.submit_blocking([](Alpha&) {});
    context.restart();
    context.run();
    CHECK(called == (failures == 1));
    CHECK(fate.deaths() == 1);
    CHECK(reported == (failures == 1 ? 0 : 1));
  }
  cox::set_task_error_callback({});
}

TEST_CASE("L2: submit_async: what a forced shutdown discards is answered with closed", "[contract]") {
  const TestDevice device;
  auto handle = cox::DeviceHandle<Alpha>::get(device);
  const Fate fate;
  std::vector<std::future<int>> answers;
  Gate gate;
  Gate started;
  handle.submit([&](Alpha&) {
    started.open();
    gate.wait();
  });
  started.wait();
  for (int i = 0; i < 100; ++i) {
    answers.push_back(handle.submit_async([ticket = fate.ticket()](Alpha&) { return 1; }, asio::use_future));
  }
  CHECK(device.close(1ms) == cox::ShutdownOutcome::Abandoned);
  for (auto& answer : answers) CHECK(kind_of([&] { answer.get(); }) == Kind::Closed);
  CHECK(fate.deaths() == 100);
  gate.open();
  CHECK(eventually([&] { return !handle.statistics().depth; }));
}

TEST_CASE("L2: submit_async: a handler is destroyed with its execution context, and what the task returns is dropped",
          "[contract]") {
  const TestDevice device;
  auto handle = cox::DeviceHandle<Alpha>::get(device);
  bool called = false;
  const Fate handlers;
  const Fate bodies;
  {
    auto context = std::make_unique<asio::io_context>();
    const Occupied occupied(handle);
    for (int i = 0; i < 10; ++i) {
      handle.submit_async([ticket = bodies.ticket()](Alpha&) { return 1; },
                          asio::bind_executor(*context, [&called, ticket = handlers.ticket()](const std::exception_ptr&,
                                                                                              int) { called = true; }));
    }
    CHECK(handlers.deaths() == 0);
    context.reset();
    CHECK(handlers.deaths() == 10);
    CHECK(bodies.deaths() == 0);
  }
  handle.submit_blocking([](Alpha&) {});
  CHECK(bodies.deaths() == 10);
  CHECK_FALSE(called);
}
