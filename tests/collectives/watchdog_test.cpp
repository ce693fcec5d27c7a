#include <coxswain/tests/support/catch.hpp>

#include <coxswain/collectives/watch/watchdog.hpp>

#include <atomic>
#include <chrono>
#include <future>
#include <optional>
#include <thread>

using cox::Watchdog;
using namespace std::chrono_literals;

namespace {

/// A clock that runs only when told to, ahead of the real one, so that no deadline comes by itself.
class WatchClock {
 public:
  [[nodiscard]] Watchdog::Time now() const { return start_ + std::chrono::hours(hours_.load()); }
  void advance(int hours) { hours_ += hours; }

 private:
  const Watchdog::Time start_ = std::chrono::steady_clock::now() + 1h;
  std::atomic<int> hours_{0};
};

void await_end(const Watchdog& watchdog) {
  while (watchdog.running()) std::this_thread::yield();
}

}  // namespace

TEST_CASE("A watchdog has a thread only while there is a deadline, and looks when it comes") {
  WatchClock clock;
  std::atomic<int> looks{0};
  std::atomic<int> looks_on_time{0};
  Watchdog watchdog(
      [&](Watchdog::Time now) -> std::optional<Watchdog::Time> {
        if (now == clock.now()) ++looks_on_time;
        ++looks;
        return std::nullopt;
      },
      [&] { return clock.now(); });
  CHECK_FALSE(watchdog.running());
  for (int round = 1; round <= 3; ++round) {
    const int before = looks;
    watchdog.watch(clock.now() + 2h);
    CHECK(watchdog.running());
    CHECK(looks == before);
    clock.advance(2);
    watchdog.recheck();
    await_end(watchdog);
    CHECK(looks > before);  // twice, if the thread has begun so late that it needs no recheck()
    CHECK(looks <= before + 2);
  }
  CHECK(looks_on_time == looks);
}

TEST_CASE("A watchdog looks again at the deadline that a look returns, and at an earlier one that is set meanwhile") {
  std::promise<void> first;
  std::promise<void> second;
  std::atomic<int> looks{0};
  Watchdog watchdog([&](Watchdog::Time now) -> std::optional<Watchdog::Time> {
    if (looks++ == 0) {
      first.set_value();
      return now + 10h;
    }
    second.set_value();
    return std::nullopt;
  });
  watchdog.watch(std::chrono::steady_clock::now() + 10h);
  watchdog.watch(std::chrono::steady_clock::now());
  first.get_future().wait();
  watchdog.watch(std::chrono::steady_clock::now() + 1ms);
  second.get_future().wait();
  await_end(watchdog);
  CHECK(looks == 2);
}

TEST_CASE("A watchdog that is stopped looks no more, and a deadline after that starts nothing") {
  std::atomic<int> looks{0};
  Watchdog watchdog([&](Watchdog::Time) -> std::optional<Watchdog::Time> {
    ++looks;
    return std::nullopt;
  });
  watchdog.watch(std::chrono::steady_clock::now() + 10h);
  watchdog.stop();
  watchdog.watch(std::chrono::steady_clock::now());
  CHECK_FALSE(watchdog.running());
  CHECK(looks == 0);
  watchdog.stop();
}
