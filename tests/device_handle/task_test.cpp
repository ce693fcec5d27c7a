// Tasks, boxed tasks and lanes, with every allocation and every move failing once: nothing leaks, nothing is lost.

#include <coxswain/tests/device_handle/contract.hpp>
#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tests/support/failing_allocation.hpp>

#include <coxswain/device_handle/queue/mailbox.hpp>

#include <array>
#include <stdexcept>

using namespace contract;
using cox::Outcome;
using cox::test::allocations_until_failure;
using cox::test::fails_now;
using cox::test::live_blocks;

namespace {

constinit std::atomic<int> alive{0};
constinit std::atomic<int> ran{0};
constinit std::atomic<int> discarded{0};

template <std::size_t size, std::size_t alignment = 8>
struct Fragile {
  Fragile() { ++alive; }
  Fragile(Fragile&&) {
    if (fails_now()) throw std::runtime_error("this move fails");
    ++alive;
  }
  Fragile& operator=(Fragile&&) = delete;
  ~Fragile() { --alive; }
  Outcome operator()() noexcept {
    ++ran;
    return Outcome::Completed;
  }
  void discard(cox::CallError::Kind) noexcept { ++discarded; }
  alignas(alignment) std::array<char, size> payload{};
};

/// Pushes `count` tasks, each failing at its k-th step for k = 0, 1, ... until it passes.
template <class T>
void fail_at_every_step(bool run) {
  const long blocks = live_blocks();
  alive = ran = discarded = 0;
  constexpr int count = 150;
  int failures = 0;
  {
    cox::Mailbox mailbox;
    auto& lane = mailbox.acquire_lane();
    for (int i = 0; i < count; ++i) {
      for (int k = 0;; ++k) {
        T task;
        allocations_until_failure = k;
        try {
          mailbox.push(lane, std::move(task), 0);
          allocations_until_failure = -1;
          break;
        } catch (...) {
          allocations_until_failure = -1;
          ++failures;
        }
      }
    }
    CHECK(alive == count);
    CHECK(mailbox.accepted() == count);
    if (run) {
      std::size_t total = 0;
      while (total < count) {
        total += mailbox.run_ready([](const auto& item) {
          item.ops->run(item.object);
          return true;
        });
      }
      CHECK(alive == 0);
      CHECK(ran == count);
    }
  }
  CHECK(failures >= count);  // at least the move fails once for each
  CHECK(alive == 0);
  CHECK(ran + discarded == count);
  CHECK(live_blocks() == blocks);
}

}  // namespace

TEST_CASE("L2: a task of one cell that fails at every step is neither lost nor leaked", "[task]") {
  fail_at_every_step<Fragile<8>>(true);
  fail_at_every_step<Fragile<40>>(false);
}

TEST_CASE("L2: a task of several cells that fails at every step is neither lost nor leaked", "[task]") {
  fail_at_every_step<Fragile<41>>(true);
  fail_at_every_step<Fragile<700>>(false);
  fail_at_every_step<Fragile<64, 64>>(true);
}

TEST_CASE("L2: a boxed task that fails at every step is neither lost nor leaked", "[task]") {
  fail_at_every_step<Fragile<2000>>(true);
  fail_at_every_step<Fragile<4000>>(false);
}

TEST_CASE("L2: a task on the heap that fails at every step is neither lost nor leaked", "[task]") {
  fail_at_every_step<Fragile<10'000>>(true);
  fail_at_every_step<Fragile<128, 128>>(true);
  fail_at_every_step<Fragile<10'000, 4096>>(false);
}

TEST_CASE("F6: in steady state a push of up to 4 KiB allocates nothing", "[task]") {
  cox::prepare_platform();
  cox::Mailbox mailbox;
  auto& lane = mailbox.acquire_lane();
  const auto push_and_run = [&] {
    for (int i = 0; i < 100; ++i) {
      mailbox.push(lane, Fragile<8>(), 0);
      mailbox.push(lane, Fragile<200>(), 0);
      mailbox.push(lane, Fragile<4000>(), 0);
      std::size_t total = 0;
      while (total < 3) {
        total += mailbox.run_ready([](const auto& item) {
          item.ops->run(item.object);
          return true;
        });
      }
    }
  };
  push_and_run();
  allocations_until_failure = 1'000'000'000;
  const int before_moves = allocations_until_failure;
  push_and_run();
  const int moves = 100 * (1 + 1 + 1);  // one into its place for each task
  const int steps = before_moves - allocations_until_failure;
  allocations_until_failure = -1;
  CHECK(steps == moves);
}

TEST_CASE("A task that does not fit the rest of a segment goes to the next one", "[task]") {
  cox::Mailbox mailbox;
  auto& lane = mailbox.acquire_lane();
  alive = ran = 0;
  int pushed = 0;
  for (int round = 0; round < 200; ++round) {
    mailbox.push(lane, Fragile<8>(), 0);
    mailbox.push(lane, Fragile<300>(), 0);
    mailbox.push(lane, Fragile<900>(), 0);
    pushed += 3;
    if (round % 7 == 0) {
      mailbox.run_ready([](const auto& item) {
        item.ops->run(item.object);
        return true;
      });
    }
  }
  while (ran < pushed) {
    mailbox.run_ready([](const auto& item) {
      item.ops->run(item.object);
      return true;
    });
  }
  CHECK(ran == pushed);
  CHECK(alive == 0);
}
