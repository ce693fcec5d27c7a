#include <coxswain/tests/support/catch.hpp>

#include <coxswain/servers/host/stream/timeline.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

using cox::detail::Timeline;

namespace {

struct Listener final : Timeline::Waiter {
  void reached() noexcept override { ++notified; }
  std::atomic<int> notified{0};
};

}  // namespace

TEST_CASE("A timeline tells those who wait for a value when it reaches it, once") {
  Timeline timeline;
  std::array<Listener, 3> listeners;
  REQUIRE(timeline.notify_at(2, listeners[2]));
  REQUIRE(timeline.notify_at(1, listeners[1]));
  REQUIRE_FALSE(timeline.notify_at(0, listeners[0]));  // is there already
  timeline.advance();
  REQUIRE(listeners[1].notified == 1);
  REQUIRE(listeners[2].notified == 0);
  REQUIRE(timeline.notify_at(2, listeners[1]));  // who was told may wait again
  timeline.advance();
  REQUIRE(listeners[0].notified == 0);
  REQUIRE(listeners[1].notified == 2);
  REQUIRE(listeners[2].notified == 1);
  timeline.advance();
  REQUIRE(listeners[1].notified == 2);
  REQUIRE(timeline.reached(3));
  REQUIRE_FALSE(timeline.reached(4));
}

TEST_CASE("A timeline that is to come to a value passes those before it, and never goes back") {
  Timeline timeline;
  std::array<Listener, 4> listeners;
  for (std::uint64_t value = 1; value <= 4; ++value) REQUIRE(timeline.notify_at(value, listeners[value - 1]));
  timeline.advance_to(3);
  REQUIRE(timeline.count() == 3);
  for (std::size_t i = 0; i < 3; ++i) REQUIRE(listeners[i].notified == 1);
  timeline.advance_to(3);
  timeline.advance_to(1);
  REQUIRE(timeline.count() == 3);
  REQUIRE(listeners[3].notified == 0);
  timeline.advance();
  REQUIRE(listeners[3].notified == 1);
}

TEST_CASE("Nobody who waits is forgotten, however close the value is") {
  constexpr std::uint64_t last = 20'000;
  Timeline timeline;
  std::thread thread([&] {
    for (std::uint64_t i = 0; i < last; ++i) timeline.advance();
  });
  int told = 0;
  int there = 0;
  for (std::uint64_t value = 1; value <= last; ++value) {
    Listener listener;
    if (timeline.notify_at(value, listener)) {
      while (listener.notified == 0) std::this_thread::yield();
      ++told;
    } else {
      REQUIRE(timeline.reached(value));
      ++there;
    }
  }
  thread.join();
  REQUIRE(told + there == static_cast<int>(last));
}

TEST_CASE("Waiting for a timeline ends when it gets there") {
  Timeline timeline;
  std::thread thread([&] {
    for (int i = 0; i < 1000; ++i) timeline.advance();
  });
  timeline.wait(1000);
  REQUIRE(timeline.reached(1000));
  thread.join();
}
