#include <coxswain/runtime/async/device_event.hpp>

#include <coxswain/device_handle/base/shutdown.hpp>
#include <coxswain/device_handle/handle/device_handle.hpp>
#include <coxswain/device_handle/service/post_queue.hpp>
#include <coxswain/device_handle/service/thread_context.hpp>
#include <coxswain/runtime/async/completion_thread.hpp>
#include <coxswain/runtime/async/future.hpp>
#include <coxswain/runtime/async/promise.hpp>
#include <coxswain/tests/runtime/fake_device_event.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

using cox::test::FakeDeviceEvent;

namespace {

struct Armed {
  std::shared_ptr<FakeDeviceEvent> device_event = std::make_shared<FakeDeviceEvent>();
  std::shared_ptr<cox::CompletionThread> helper = std::make_shared<cox::CompletionThread>(cox::DeviceId{.type = 79});
  cox::Promise<int> promise{helper};
  cox::Future<int> future = promise.future();
};

}  // namespace

TEST_CASE("Who waits for a future waits for its device event, and makes the value") {
  Armed armed;
  std::thread::id settled_on;
  armed.promise.settle_at(armed.device_event, [&settled_on] {
    settled_on = std::this_thread::get_id();
    return 42;
  });
  REQUIRE_FALSE(armed.future.ready());
  REQUIRE_FALSE(armed.future.wait_for(std::chrono::milliseconds(1)));
  armed.device_event->reach();
  REQUIRE(armed.device_event->listeners() == 0);  // nobody else was asked to
  REQUIRE(armed.future.get() == 42);
  REQUIRE(settled_on == std::this_thread::get_id());
}

namespace {

/// A service whose thread has something to do whenever it is notified.
struct Helper {
  explicit Helper(cox::ThreadContext& thread)
      : posts(std::make_shared<cox::PostQueue>(thread.device(), [this] {
          if (on_answer) on_answer();
        })) {
    posts->attach(thread);
  }
  std::shared_ptr<cox::PostQueue> posts;
  std::function<void()> on_answer;
};

}  // namespace

TEST_CASE("L10: a device event may need the device thread that waits for it inside exclusive") {
  const bool with_deadline = GENERATE(false, true);
  const cox::DeviceId device{76, 0};
  const auto handle = cox::DeviceHandle<Helper>::get(device);
  handle.exclusive([&] {
    Armed armed;
    armed.promise.settle_at(armed.device_event, [] { return 42; });
    int answers = 0;
    handle.submit_blocking([&](Helper& helper) {
      helper.on_answer = [&] {
        if (++answers == 3) armed.device_event->reach();
      };
    });
    if (with_deadline) CHECK(armed.future.wait_for(std::chrono::seconds(60)));
    CHECK(armed.future.get() == 42);
    CHECK(answers >= 3);
    handle.submit_blocking([](Helper& helper) { helper.on_answer = {}; });
  });
  cox::shutdown(device);
}

TEST_CASE("L10: a promise may be kept by the device thread that waits for it inside exclusive") {
  const cox::DeviceId device{76, 0};
  const auto handle = cox::DeviceHandle<Helper>::get(device);
  const auto completions = std::make_shared<cox::CompletionThread>(device);
  handle.exclusive([&] {
    auto promise = std::make_unique<cox::Promise<int>>(completions);
    cox::Future<int> future = promise->future();
    CHECK_FALSE(future.wait_for(std::chrono::nanoseconds(0)));
    const auto posts = handle.submit_blocking([](Helper& helper) { return helper.posts; });
    std::thread poster([&] { posts->post([&] { promise->set_value(7); }); });
    CHECK(future.get() == 7);
    poster.join();
    cox::Promise<int> never(completions);
    CHECK_FALSE(never.future().wait_for(std::chrono::milliseconds(1)));
    never.set_value(0);
  });
  cox::shutdown(device);
}

TEST_CASE("A future that is waited for before it has a device event is not missed") {
  Armed armed;
  std::thread waiter([&] { REQUIRE(armed.future.get() == 7); });
  armed.promise.settle_at(armed.device_event, [] { return 7; });
  armed.device_event->reach();
  waiter.join();
}

TEST_CASE("What makes the value may fail, and that is the future's error") {
  Armed armed;
  armed.promise.settle_at(armed.device_event, []() -> int { throw std::runtime_error("no value"); });
  armed.device_event->reach();
  REQUIRE_THROWS_WITH(armed.future.get(), "no value");
}

TEST_CASE("A handler is served by the device event, whether it came before it or after") {
  for (const bool handler_first : {true, false}) {
    Armed armed;
    std::promise<int> got;
    const auto listen = [&] {
      armed.future.async_get([&got](const std::exception_ptr& error, int value) { got.set_value(error ? -1 : value); });
    };
    const auto arm = [&] { armed.promise.settle_at(armed.device_event, [] { return 5; }); };
    if (handler_first) listen();
    arm();
    if (!handler_first) listen();
    REQUIRE(armed.device_event->listeners() == 1);
    armed.device_event->reach();
    REQUIRE(got.get_future().get() == 5);
  }
}

TEST_CASE("A handler for a future whose device has been closed is served on the spot") {
  for (const bool handler_first : {true, false}) {
    Armed armed;
    armed.device_event->reach();
    std::promise<int> got;
    const auto listen = [&] {
      armed.future.async_get([&got](const std::exception_ptr& error, int value) { got.set_value(error ? -1 : value); });
    };
    if (handler_first) listen();
    armed.promise.settle_at(armed.device_event, [] { return 5; });
    if (!handler_first) listen();
    REQUIRE(got.get_future().get() == 5);
  }
}

TEST_CASE("L11: what an armed future holds is kept until the device event, also when the future is dropped") {
  auto held = std::make_shared<int>(1);
  const std::weak_ptr<int> watched = held;
  Armed armed;
  armed.promise.settle_at(armed.device_event, [held = std::move(held)] { return *held; });
  armed.future = {};
  REQUIRE_FALSE(watched.expired());
  armed.device_event->reach();
  REQUIRE(watched.expired());
}

TEST_CASE("Threads that wait for one future at a time make its value once") {
  for (int round = 0; round < 200; ++round) {
    Armed armed;
    std::atomic<int> made{0};
    armed.promise.settle_at(armed.device_event, [&made] { return ++made; });
    std::vector<std::thread> waiters;
    for (int i = 0; i < 3; ++i) waiters.emplace_back([&armed] { armed.future.wait(); });
    armed.device_event->reach();
    for (std::thread& waiter : waiters) waiter.join();
    REQUIRE(armed.future.get() == 1);
  }
}
