// submit_async with every kind of Asio completion token. One suite, both handles.

#include <coxswain/tests/device_handle/contract.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/deferred.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/use_future.hpp>

#include <future>
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

TEMPLATE_TEST_CASE("L4: submit_async on a device that was shut down throws closed at once", "[contract]", Threaded,
                   Inline) {
  const TestDevice device;
  auto handle = TestType::template Handle<Alpha>::get(device);
  device.close();
  const Fate fate;
  CHECK(kind_of([&] {
          static_cast<void>(handle.submit_async([ticket = fate.ticket()](Alpha&) {}, asio::use_future));
        }) == Kind::Closed);
  CHECK(fate.deaths() == 1);
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
