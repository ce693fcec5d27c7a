#include <coxswain/tests/runtime/fake_device_event.hpp>
#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tests/support/failing_allocation.hpp>

#include <coxswain/runtime/async/future.hpp>

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/use_future.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <coroutine>
#include <cstddef>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

using cox::Future;
using cox::Promise;
using namespace std::chrono_literals;

namespace {

std::shared_ptr<cox::CompletionThread> make_helper() {
  return std::make_shared<cox::CompletionThread>(cox::DeviceId{});
}

}  // namespace

TEST_CASE("A future gives the value that its promise was given, on another thread") {
  Promise<std::unique_ptr<int>> promise(make_helper());
  auto future = promise.future();
  REQUIRE_FALSE(future.ready());
  REQUIRE_FALSE(future.wait_for(0ms));
  std::thread thread([promise = std::move(promise)]() mutable { promise.set_value(std::make_unique<int>(4)); });
  REQUIRE(*future.get() == 4);
  REQUIRE_FALSE(future.valid());
  thread.join();
}

TEST_CASE("A future throws what its promise was given") {
  Promise<void> promise(make_helper());
  auto future = promise.future();
  promise.set_error(std::make_exception_ptr(std::out_of_range("far")));
  REQUIRE(future.wait_for(0ms));
  REQUIRE_THROWS_AS(future.get(), std::out_of_range);
}

TEST_CASE("L2: a promise that dies without an answer answers Closed") {
  Future<int> future;
  {
    Promise<int> promise(make_helper());
    future = promise.future();
    promise = Promise<int>(make_helper());
    REQUIRE(future.ready());
  }
  try {
    future.get();
    FAIL("an answer was made up");
  } catch (const cox::CallError& error) {
    REQUIRE(error.kind() == cox::CallError::Kind::Closed);
  }
}

TEST_CASE("A future may be dropped before and after its promise is fulfilled") {
  Promise<int> promise(make_helper());
  {
    const auto dropped = promise.future();
  }
  promise.set_value(1);
}

// The device writes to what the function holds, such as the memory of a read.
TEST_CASE("A future that is dropped early keeps its memory until the device has come so far, without memory as well") {
  for (int allocations = 0;; ++allocations) {
    INFO("after " << allocations << " allocations");
    const auto event = std::make_shared<cox::test::FakeDeviceEvent>();
    auto written = std::make_shared<std::array<std::byte, 200>>();
    const std::weak_ptr<void> memory = written;
    Promise<int> promise(make_helper());
    auto future = std::make_unique<Future<int>>(promise.future());
    promise.settle_at(event, [written = std::move(written), large = std::array<std::byte, 200>{}] { return 1; });
    std::atomic<bool> has_failed{false};
    std::thread dropping([&] {
      cox::test::allocations_until_failure = allocations;
      future.reset();
      has_failed = std::exchange(cox::test::allocations_until_failure, -1) < 0;
    });
    const auto end = std::chrono::steady_clock::now() + 20ms;  // it may wait for the event
    while (event->listeners() == 0 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    CHECK_FALSE(memory.expired());
    event->reach();
    dropping.join();
    CHECK(memory.expired());
    if (!has_failed) break;
  }
}

TEST_CASE("A plain handler runs on the completion thread, with the StreamId of who asked") {
  const auto helper = make_helper();
  for (const bool ready_before : {false, true}) {
    Promise<int> promise(helper);
    auto future = promise.future();
    if (ready_before) promise.set_value(3);
    std::promise<std::pair<std::thread::id, cox::StreamId>> seen;
    cox::StreamId{77}.executes([&] {
      future.async_get([&](std::exception_ptr error, int value) {
        REQUIRE(error == nullptr);
        REQUIRE(value == 3);
        seen.set_value({std::this_thread::get_id(), cox::StreamId::current()});
      });
    });
    if (!ready_before) promise.set_value(3);
    const auto [thread, stream] = seen.get_future().get();
    REQUIRE(thread != std::this_thread::get_id());
    REQUIRE(stream == cox::StreamId{77});
  }
  helper->stop();
}

TEST_CASE("A handler runs on the executor that it is bound to, which is kept running for it") {
  boost::asio::io_context context;
  Promise<void> promise(make_helper());
  std::thread::id where;
  promise.future().async_get(
      boost::asio::bind_executor(context, [&](std::exception_ptr) { where = std::this_thread::get_id(); }));
  std::thread thread([promise = std::move(promise)]() mutable { promise.set_value(); });
  context.run();
  REQUIRE(where == std::this_thread::get_id());
  thread.join();
}

TEST_CASE("L9: an Asio coroutine keeps its StreamId across an await of a future") {
  boost::asio::io_context context;
  Promise<int> promise(make_helper());
  int result = 0;
  cox::StreamId stream;
  boost::asio::co_spawn(
      context,
      [&, future = promise.future()]() mutable -> boost::asio::awaitable<void> {
        const cox::StreamId mine{123};
        auto operation = mine.executes([&] { return future.async_get(boost::asio::use_awaitable); });
        const cox::StreamScope scope(mine);
        result = co_await std::move(operation);
        stream = cox::StreamId::current();
      },
      boost::asio::detached);
  std::thread thread([promise = std::move(promise)]() mutable { promise.set_value(5); });
  context.run();
  REQUIRE(result == 5);
  REQUIRE(stream == cox::StreamId{123});
  thread.join();
}

TEST_CASE("use_future completes with the value or the error") {
  const auto helper = make_helper();
  Promise<int> good(helper);
  auto value = good.future().async_get(boost::asio::use_future);
  good.set_value(6);
  REQUIRE(value.get() == 6);
  Promise<int> bad(helper);
  auto error = bad.future().async_get(boost::asio::use_future);
  bad.set_error(std::make_exception_ptr(std::out_of_range("far")));
  REQUIRE_THROWS_AS(error.get(), std::out_of_range);
}

namespace {

/// The simplest coroutine there is: runs until its first await, and is resumed by whom it awaits.
struct Detached {
  struct promise_type {
    Detached get_return_object() { return {}; }
    std::suspend_never initial_suspend() noexcept { return {}; }
    std::suspend_never final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { std::terminate(); }
  };
};

Detached await_future(Future<int> future, std::promise<std::pair<int, cox::StreamId>>& done) {
  const int value = co_await std::move(future);
  done.set_value({value, cox::StreamId::current()});
}

}  // namespace

TEST_CASE("L9: any coroutine may await a future and keeps its StreamId") {
  const auto helper = make_helper();
  Promise<int> promise(helper);
  std::promise<std::pair<int, cox::StreamId>> done;
  cox::StreamId{55}.executes([&] { await_future(promise.future(), done); });
  promise.set_value(8);
  const auto [value, stream] = done.get_future().get();
  REQUIRE(value == 8);
  REQUIRE(stream == cox::StreamId{55});
  helper->stop();
}

TEST_CASE("A wait by token can be cancelled; the operation goes on and its late result is dropped") {
  boost::asio::io_context context;
  boost::asio::cancellation_signal signal;
  const auto tracked = std::make_shared<int>(1);
  Promise<std::shared_ptr<int>> promise(make_helper());
  auto future = promise.future();
  int calls = 0;
  std::exception_ptr error;
  future.async_get(boost::asio::bind_cancellation_slot(
      signal.slot(), boost::asio::bind_executor(context, [&](std::exception_ptr e, std::shared_ptr<int> value) {
        ++calls;
        error = e;
        CHECK(value == nullptr);
      })));
  signal.emit(boost::asio::cancellation_type::terminal);
  context.run();
  REQUIRE(calls == 1);
  try {
    std::rethrow_exception(error);
  } catch (const cox::CallError& cancelled) {
    CHECK(cancelled.kind() == cox::CallError::Kind::Cancelled);
  }
  promise.set_value(tracked);
  context.restart();
  context.run();
  CHECK(calls == 1);
  CHECK(tracked.use_count() == 1);
}

TEST_CASE("Cancelling a wait that has its result changes nothing") {
  boost::asio::io_context context;
  boost::asio::cancellation_signal signal;
  Promise<int> promise(make_helper());
  auto future = promise.future();
  int got = 0;
  future.async_get(boost::asio::bind_cancellation_slot(
      signal.slot(), boost::asio::bind_executor(context, [&](std::exception_ptr, int value) { got = value; })));
  promise.set_value(7);
  signal.emit(boost::asio::cancellation_type::terminal);
  context.run();
  CHECK(got == 7);
  signal.emit(boost::asio::cancellation_type::terminal);  // the slot is free again
}

TEST_CASE("A coroutine that waits for the first of two gives the other wait up") {
  using namespace boost::asio::experimental::awaitable_operators;
  boost::asio::io_context context;
  Promise<int> answered(make_helper());
  Promise<int> never(make_helper());
  auto first = answered.future();
  auto second = never.future();
  std::size_t winner = 9;
  boost::asio::co_spawn(
      context,
      [&]() -> boost::asio::awaitable<void> {
        answered.set_value(3);
        const auto result =
            co_await (first.async_get(boost::asio::use_awaitable) || second.async_get(boost::asio::use_awaitable));
        winner = result.index();
      },
      boost::asio::detached);
  context.run();  // ends although the second operation has not
  CHECK(winner == 0);
}

static_assert(!std::is_copy_constructible_v<Future<int>> && !std::is_copy_assignable_v<Future<int>>);
static_assert(std::is_nothrow_move_constructible_v<Future<int>> && std::is_nothrow_move_assignable_v<Future<int>>);

TEST_CASE("A wait of any length waits until the result is there") {
  using Hours = std::chrono::duration<double, std::ratio<3600>>;
  const std::chrono::nanoseconds longest = std::chrono::nanoseconds::max();
  for (int i = 0; i < 4; ++i) {
    Promise<int> promise(make_helper());
    auto future = promise.future();
    std::promise<void> waiting;
    auto there = std::async(std::launch::async, [&] {
      waiting.set_value();
      switch (i) {
        case 0: return future.wait_for(longest);
        case 1: return future.wait_for(std::chrono::hours::max());
        case 2: return future.wait_for(Hours(1e300));
        default: return future.wait_for(longest - std::chrono::steady_clock::now().time_since_epoch());
      }
    });
    waiting.get_future().get();
    CHECK(there.wait_for(20ms) == std::future_status::timeout);
    promise.set_value(i);
    CHECK(there.get());
    CHECK_FALSE(Promise<int>(make_helper()).future().wait_for(std::chrono::nanoseconds::min()));
  }
}

namespace {

/// Says what became of the error that it belongs to.
class NotedReceipt final : public cox::detail::ErrorReceipt {
 public:
  explicit NotedReceipt(std::string& fate) : fate_(fate) {}
  ~NotedReceipt() override {
    if (fate_.empty()) fate_ = "returned";
  }
  void delivered() noexcept override { fate_ = "delivered"; }

 private:
  std::string& fate_;
};

cox::detail::TakenError taken(std::string& fate) {
  return {std::make_exception_ptr(std::out_of_range("far")), std::make_shared<NotedReceipt>(fate)};
}

}  // namespace

TEST_CASE("L12: an error is delivered when it is taken from its future, and returned when the future is dropped") {
  std::string fate;
  {
    Promise<void> promise(make_helper());
    auto future = promise.future();
    SECTION("taken") {
      promise.set_error(taken(fate));
      CHECK(future.wait_for(0ms));
      CHECK(fate.empty());
      CHECK_THROWS_AS(future.get(), std::out_of_range);
      CHECK(fate == "delivered");
    }
    SECTION("taken by a token") {
      auto result = future.async_get(boost::asio::use_future);
      promise.set_error(taken(fate));
      CHECK_THROWS_AS(result.get(), std::out_of_range);
      CHECK(fate == "delivered");
    }
    SECTION("dropped later") {
      promise.set_error(taken(fate));
      future.wait();
      CHECK(fate.empty());
      future = {};
      CHECK(fate == "returned");
    }
    SECTION("dropped before") {
      future = {};
      promise.set_error(taken(fate));
      CHECK(fate == "returned");
    }
  }
  CHECK_FALSE(fate.empty());
}

TEST_CASE("A handler without an executor leaves its cancellation slot to the thread that emits the signal") {
  Promise<int> promise(make_helper());
  auto future = promise.future();
  boost::asio::cancellation_signal signal;
  std::promise<int> got;
  future.async_get(boost::asio::bind_cancellation_slot(
      signal.slot(), [&](const std::exception_ptr&, int value) { got.set_value(value); }));
  promise.set_value(5);
  REQUIRE(got.get_future().get() == 5);
  REQUIRE(signal.slot().has_handler());  // the completion thread has not touched it
  signal.emit(boost::asio::cancellation_type::terminal);
  signal.slot().clear();
}

TEST_CASE("A handler is destroyed with its execution context, and the result that comes later is dropped") {
  Promise<int> promise(make_helper());
  auto future = promise.future();
  auto held = std::make_shared<int>(1);
  bool called = false;
  {
    boost::asio::io_context context;
    future.async_get(
        boost::asio::bind_executor(context, [&called, held](const std::exception_ptr&, int) { called = true; }));
    REQUIRE(held.use_count() == 2);
  }
  REQUIRE(held.use_count() == 1);
  promise.set_value(5);
  REQUIRE_FALSE(called);
}
