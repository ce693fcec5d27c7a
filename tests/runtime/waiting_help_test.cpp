#include <coxswain/tests/support/catch.hpp>

#include <coxswain/runtime/async/completion_thread.hpp>
#include <coxswain/runtime/async/future.hpp>
#include <coxswain/runtime/async/promise.hpp>
#include <coxswain/runtime/async/waiting_help.hpp>

#include <chrono>
#include <memory>
#include <optional>
#include <thread>

using namespace cox;
using detail::set_waiting_help;
using detail::waiting_help;

TEST_CASE("A thread has no help until it says what it does, and others have none of it") {
  std::thread([] {
    CHECK(waiting_help() == nullptr);
    set_waiting_help([] {});
    CHECK(waiting_help() != nullptr);
    std::thread([] { CHECK(waiting_help() == nullptr); }).join();
    set_waiting_help({});
    CHECK(waiting_help() == nullptr);
  }).join();
}

TEST_CASE("What a thread waits for may be done by its own help") {
  std::thread([] {
    const auto helper = std::make_shared<CompletionThread>(DeviceId{.type = 0, .index = 0});
    std::optional<Promise<int>> promise;
    promise.emplace(helper);
    Future<int> future = promise->future();
    int calls = 0;
    set_waiting_help([&] {
      if (++calls == 3) promise->set_value(7);
    });
    CHECK_FALSE(future.wait_for(std::chrono::nanoseconds(0)));
    CHECK(future.get() == 7);
    CHECK(calls >= 3);
    Promise<int> never(helper);
    CHECK_FALSE(never.future().wait_for(std::chrono::milliseconds(1)));
    set_waiting_help({});
    never.set_value(0);
  }).join();
}
