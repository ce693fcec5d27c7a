#include <coxswain/tests/support/catch.hpp>

#include <coxswain/collectives/watch/deadline_watch.hpp>

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

using namespace std::chrono_literals;
using cox::Watchdog;
using cox::detail::DeadlineWatch;

namespace {

/// Has deadlines until it has been looked at so often.
struct Watched : std::enable_shared_from_this<Watched> {
  explicit Watched(int looks) : left(looks) {}
  ~Watched() { DeadlineWatch<Watched>::of_process().remove(*this); }

  std::optional<Watchdog::Time> check_deadlines(Watchdog::Time now) noexcept {
    ++checks;
    if (--left <= 0) return std::nullopt;
    return now + 1ms;
  }

  std::atomic<int> checks{0};
  std::atomic<int> left;
};

std::shared_ptr<Watched> add_watched(int looks) {
  auto made = std::make_shared<Watched>(looks);
  DeadlineWatch<Watched>::of_process().add(*made, std::chrono::steady_clock::now());
  return made;
}

// The watch holds an object while it looks at it, so that one may go a little later than its owner.
void wait_for_count(int expected) {
  for (int objects = -1; objects != expected; std::this_thread::yield()) {
    objects = 0;
    DeadlineWatch<Watched>::of_process().for_each([&](Watched&) { ++objects; });
  }
}

}  // namespace

TEST_CASE("Every object is looked at until it has no deadline any more") {
  std::vector<std::shared_ptr<Watched>> objects;
  for (int looks = 1; looks <= 5; ++looks) objects.push_back(add_watched(looks));
  for (const auto& object : objects)
    while (object->left > 0) std::this_thread::yield();
  for (int i = 0; i < 5; ++i) CHECK(objects[static_cast<std::size_t>(i)]->checks >= i + 1);
}

TEST_CASE("An object that is destroyed is not looked at, whatever deadline it had") {
  auto first = add_watched(1'000'000);
  {
    const auto second = add_watched(1'000'000);
    wait_for_count(2);
  }
  wait_for_count(1);
  while (first->checks < 3) std::this_thread::yield();
  first.reset();
  wait_for_count(0);
}

TEST_CASE("Objects come and go while others are looked at") {
  const auto lasting = add_watched(1'000'000);
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t)
    threads.emplace_back([] {
      for (int i = 0; i < 2000; ++i) static_cast<void>(add_watched(1 + i % 3));
    });
  for (auto& thread : threads) thread.join();
  wait_for_count(1);
  const int seen = lasting->checks;
  while (lasting->checks == seen) std::this_thread::yield();
}
