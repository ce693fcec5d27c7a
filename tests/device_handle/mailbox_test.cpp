// The mailbox by itself, on one thread; and moments between two threads that a platform with hooks makes certain.
// tests/model runs it in every interleaving.

#include <coxswain/tests/device_handle/contract.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/device_handle/queue/mailbox.hpp>

#include <coxswain/tests/support/failing_allocation.hpp>

#include <algorithm>
#include <functional>
#include <future>
#include <stdexcept>

using namespace contract;
using cox::Outcome;
using cox::PushResult;
using cox::QueuePolicy;

namespace {

/// Stops where a test wants it to.
struct HookedPlatform : cox::SystemPlatform {
  static inline thread_local std::function<void()> at_light_barrier;
  static inline thread_local std::function<void()> at_pause;

  static void light_barrier() noexcept {
    if (at_light_barrier) at_light_barrier();
    SystemPlatform::light_barrier();
  }
  static void pause() noexcept {
    if (at_pause) at_pause();
    SystemPlatform::pause();
  }
};

/// Calls a function once, right after a 64-bit word was loaded or right before a thread sleeps: what a thread sees that
/// loses its processor there.
struct PreemptedPlatform : cox::SystemPlatform {
  static inline thread_local std::function<void()> after_load;
  static inline std::function<void()> before_sleep;

  template <class T>
  struct atomic : std::atomic<T> {
    using std::atomic<T>::atomic;
    T load(std::memory_order order = std::memory_order_seq_cst) const noexcept {
      const T value = std::atomic<T>::load(order);
      if constexpr (std::is_same_v<T, std::uint64_t>) {
        if (const auto function = std::exchange(after_load, nullptr)) function();
      }
      return value;
    }
  };
  static void park(atomic<std::uint32_t>& word, std::uint32_t expected) noexcept {
    if (before_sleep) before_sleep();
    SystemPlatform::park(word, expected);
  }
};

/// A clock that a test sets back. When that has been noticed, stamps come from a counter.
struct SetBackPlatform : cox::SystemPlatform {
  static inline std::atomic<std::uint64_t> clock;
  static inline std::atomic<std::uint64_t> counter;
  static inline std::atomic<bool> trusted;

  static void reset() {
    clock = std::uint64_t{1} << 50;
    counter = std::uint64_t{1} << 60;
    trusted = true;
  }
  static std::uint64_t now() noexcept { return trusted ? clock.fetch_add(100) : counter.fetch_add(1); }
  static std::uint64_t now_early() noexcept { return clock.fetch_add(100); }
  static std::uint64_t now_fenced() noexcept { return now(); }
  static bool clock_runs() noexcept { return trusted; }
  static void distrust_clock() noexcept { trusted = false; }
};

struct Log {
  std::vector<int> ran;
  std::vector<int> discarded;
};

struct Note {
  Log* log;
  int number;
  Outcome operator()() const noexcept {
    log->ran.push_back(number);
    return Outcome::Completed;
  }
  void discard(cox::CallError::Kind) const noexcept { log->discarded.push_back(number); }
};

template <class Mailbox>
std::size_t run_all(Mailbox& mailbox) {
  return mailbox.run_ready([](const auto& item) {
    item.ops->run(item.object);
    return true;
  });
}

}  // namespace

TEST_CASE("L1: a mailbox runs what lies in several lanes in the order of its pushes", "[mailbox]") {
  cox::prepare_platform();
  Log log;
  cox::Mailbox mailbox;
  cox::Mailbox::Lane* lanes[3] = {&mailbox.acquire_lane(), &mailbox.acquire_lane(), &mailbox.acquire_lane()};
  std::vector<int> expected;
  for (int i = 0; i < 1000; ++i) {
    const auto result = mailbox.push(*lanes[(i * 7) % 3], Note{&log, i}, 0);
    REQUIRE((result == PushResult::Queued || result == PushResult::Woke));
    expected.push_back(i);
    if (i % 100 == 50) run_all(mailbox);
  }
  while (log.ran.size() < 1000) run_all(mailbox);
  CHECK(log.ran == expected);
  CHECK(mailbox.accepted() == 1000);
}

TEST_CASE("Of a lane that is attended to alone one push in eight tells when it was, and all if anybody asks",
          "[mailbox]") {
  cox::prepare_platform();
  if (!cox::stamps_are_time()) return;  // each push takes a number of its own
  Log log;
  cox::Mailbox mailbox;
  auto& lane = mailbox.acquire_lane();
  std::vector<std::uint64_t> submitted;
  const auto run = [&] {
    mailbox.run_ready([&](const auto& item) {
      submitted.push_back(item.submitted);
      item.ops->run(item.object);
      return true;
    });
  };
  const auto push = [&] { mailbox.push(lane, Note{&log, 0}, 0); };
  push();
  run();
  CHECK(submitted.at(0) != 0);  // nobody attended
  run();                        // and finds no other lane
  submitted.clear();
  const std::uint64_t before = cox::SystemPlatform::now();
  for (int i = 0; i < 80; ++i) push();
  const std::uint64_t after = cox::SystemPlatform::now();
  run();
  REQUIRE(submitted.size() == 80);
  CHECK(std::ranges::count_if(submitted, [](auto time) { return time != 0; }) == 10);
  CHECK(std::ranges::all_of(submitted, [=](auto time) { return time == 0 || (before <= time && time <= after); }));

  submitted.clear();
  constexpr cox::TaskTracer tracer{};
  cox::set_task_tracer(&tracer);
  for (int i = 0; i < 80; ++i) push();
  cox::set_task_tracer(nullptr);
  run();
  CHECK(std::ranges::count(submitted, 0U) == 0);
  CHECK(std::ranges::is_sorted(submitted));
}

TEST_CASE("L4: after close a mailbox refuses, and what it accepted is still run", "[mailbox]") {
  Log log;
  cox::Mailbox mailbox;
  auto& lane = mailbox.acquire_lane();
  mailbox.push(lane, Note{&log, 1}, 0);
  mailbox.close();
  mailbox.close();
  CHECK(mailbox.closing());
  CHECK(mailbox.push(lane, Note{&log, 2}, 0) == PushResult::Closed);
  mailbox.quiesce();
  CHECK_FALSE(mailbox.empty());
  CHECK(run_all(mailbox) == 1);
  CHECK(mailbox.empty());
  CHECK(log.ran == std::vector{1});
  CHECK(log.discarded.empty());
}

TEST_CASE("L2: a mailbox that goes discards what it holds, each once", "[mailbox]") {
  Log log;
  {
    cox::Mailbox mailbox;
    for (int i = 0; i < 200; ++i) mailbox.push(mailbox.acquire_lane(), Note{&log, i}, 0);
  }
  CHECK(log.ran.empty());
  std::ranges::sort(log.discarded);
  REQUIRE(log.discarded.size() == 200);
  for (int i = 0; i < 200; ++i) CHECK(log.discarded[static_cast<std::size_t>(i)] == i);
}

TEST_CASE("A mailbox of a forked child says forked", "[mailbox]") {
  Log log;
  cox::Mailbox mailbox;
  mailbox.mark_forked();
  CHECK(mailbox.push(mailbox.acquire_lane(), Note{&log, 1}, 0) == PushResult::Forked);
}

TEST_CASE("A lane that was released is used again", "[mailbox]") {
  cox::Mailbox mailbox;
  auto& lane = mailbox.acquire_lane();
  auto& other = mailbox.acquire_lane();
  CHECK(&lane != &other);
  mailbox.release_lane(lane);
  CHECK(&mailbox.acquire_lane() == &lane);
}

TEST_CASE("L7: under Fail a mailbox takes its capacity and no more, and again after it has run", "[mailbox]") {
  for (const std::size_t capacity : {1U, 2U, 255U, 256U, 511U}) {
    cox::Mailbox mailbox(QueuePolicy::Fail, capacity);
    Log log;
    auto& lane = mailbox.acquire_lane();
    for (int round = 0; round < 3; ++round) {
      std::size_t taken = 0;
      while (mailbox.push(lane, Note{&log, 0}, 0) != PushResult::Full) ++taken;
      CHECK(taken == capacity);
      std::size_t ran = 0;
      while (ran < capacity) ran += run_all(mailbox);
    }
  }
}

TEST_CASE("L7: under Fail a push is not refused for what others pushed and ran while it read how full the queue is",
          "[mailbox]") {
  constexpr std::size_t capacity = 4;
  Log log;
  cox::BasicMailbox<PreemptedPlatform> mailbox(QueuePolicy::Fail, capacity);
  auto& lane = mailbox.acquire_lane();
  auto& other = mailbox.acquire_lane();
  bool preempted = false;
  PreemptedPlatform::after_load = [&] {
    preempted = true;
    for (std::size_t i = 0; i < 2 * capacity; ++i) {
      CHECK(mailbox.push(other, Note{&log, 1}, 0) != PushResult::Full);
      while (run_all(mailbox) != 0) {
      }
    }
  };
  CHECK(mailbox.push(lane, Note{&log, 2}, 0) != PushResult::Full);
  CHECK(preempted);
}

TEST_CASE("L7: a closure that cannot be built keeps no room in the queue", "[mailbox]") {
  Log log;
  cox::Mailbox mailbox(QueuePolicy::Fail, 1);
  auto& lane = mailbox.acquire_lane();
  auto& other = mailbox.acquire_lane();
  SECTION("because it throws") {
    const auto unbuildable = [&]() -> Note { throw std::runtime_error("cannot be built"); };
    CHECK_THROWS_AS(mailbox.push(lane, unbuildable, 0), std::runtime_error);
  }
  SECTION("because it throws, on a lane for one push") {
    lane.on_loan = true;
    const auto unbuildable = [&]() -> Note { throw std::runtime_error("cannot be built"); };
    CHECK_THROWS_AS(mailbox.push(lane, unbuildable, 0), std::runtime_error);
  }
  SECTION("because there is no memory") {
    const auto push = [&] {
      cox::test::allocations_until_failure = 0;
      return mailbox.push(lane, Note{&log, 0}, 0);
    };
    CHECK_THROWS_AS(push(), std::bad_alloc);
  }
  CHECK(mailbox.push(other, Note{&log, 1}, 0) != PushResult::Full);
  CHECK(run_all(mailbox) == 1);
  CHECK(log.ran == std::vector{1});
}

TEST_CASE("L3 L7: a thread that waits for room gets that of a closure that could not be built", "[mailbox]") {
  Log log;
  cox::BasicMailbox<PreemptedPlatform> mailbox(QueuePolicy::Block, 1);
  auto& lane = mailbox.acquire_lane();
  auto& other = mailbox.acquire_lane();
  Gate building;
  Gate waiting;
  PreemptedPlatform::before_sleep = [&] { waiting.open(); };
  auto thrower = std::async(std::launch::async, [&] {
    const auto unbuildable = [&]() -> Note {
      building.open();
      waiting.wait();
      throw std::runtime_error("cannot be built");
    };
    mailbox.push(lane, unbuildable, 0);
  });
  building.wait();
  auto pushed = std::async(std::launch::async, [&] { return mailbox.push(other, Note{&log, 1}, 0); });
  const bool got_room = pushed.wait_for(never) == std::future_status::ready;
  CHECK(got_room);
  if (!got_room) mailbox.close();
  CHECK(pushed.get() != PushResult::Full);
  CHECK_THROWS_AS(thrower.get(), std::runtime_error);
  PreemptedPlatform::before_sleep = nullptr;
}

TEST_CASE("L1 L3: what is queued runs, in order, after the clock was set back", "[mailbox]") {
  SetBackPlatform::reset();
  Log log;
  cox::BasicMailbox<SetBackPlatform> mailbox;
  auto& lane = mailbox.acquire_lane();
  auto& other = mailbox.acquire_lane();
  const auto run = [&](std::size_t count) {
    for (int round = 0; round < 100 && log.ran.size() < count; ++round) run_all(mailbox);
    return log.ran.size() == count;
  };
  mailbox.push(lane, Note{&log, 1}, 0);
  mailbox.push(other, Note{&log, 2}, 0);
  REQUIRE(run(2));

  SECTION("before the device thread has run what was there") {
    mailbox.push(other, Note{&log, 3}, 0);
    SetBackPlatform::clock = 0;
    CHECK(run(3));
    CHECK_FALSE(SetBackPlatform::trusted);
    mailbox.push(lane, Note{&log, 4}, 0);
  }
  SECTION("and something is pushed before anything runs") {
    mailbox.push(other, Note{&log, 3}, 0);
    SetBackPlatform::clock = 0;
    mailbox.push(lane, Note{&log, 4}, 0);
    CHECK_FALSE(SetBackPlatform::trusted);
  }
  mailbox.push(other, Note{&log, 5}, 0);
  mailbox.push(mailbox.acquire_lane(), Note{&log, 6}, 0);
  mailbox.push(lane, Note{&log, 7}, 0);
  CHECK(run(7));
  CHECK(log.ran == std::vector{1, 2, 3, 4, 5, 6, 7});

  mailbox.push(lane, Note{&log, 8}, 0);
  mailbox.close();
  mailbox.quiesce();
  CHECK(run(8));
  CHECK(mailbox.empty());
}

TEST_CASE("L1: a lane that was attended to alone does not run ahead of the counter that replaces a clock",
          "[mailbox]") {
  SetBackPlatform::reset();
  Log log;
  cox::BasicMailbox<SetBackPlatform> mailbox;
  auto& lane = mailbox.acquire_lane();
  auto& other = mailbox.acquire_lane();
  mailbox.push(lane, Note{&log, -1}, 0);
  for (int round = 0; round < 3; ++round) run_all(mailbox);  // from now on its stamps need not be exact
  SetBackPlatform::clock = 0;
  for (int i = 0; i < 1000; ++i) mailbox.push(lane, Note{&log, i}, 0);
  CHECK_FALSE(SetBackPlatform::trusted);
  mailbox.push(other, Note{&log, 1000}, 0);
  for (int round = 0; round < 100 && log.ran.size() < 1002; ++round) run_all(mailbox);
  REQUIRE(log.ran.size() == 1002);
  CHECK(std::ranges::is_sorted(log.ran));
}

TEST_CASE("L3: the device thread attends to any number of lanes without memory to be had", "[mailbox]") {
  Log log;
  cox::Mailbox mailbox;
  constexpr int lanes = 300;
  std::vector<int> expected;
  for (int i = 0; i < lanes; ++i) {
    mailbox.push(mailbox.acquire_lane(), Note{&log, i}, 0);
    expected.push_back(i);
  }
  log.ran.reserve(lanes);
  log.discarded.reserve(lanes);
  const auto without_memory = [](auto&& function) {
    cox::test::allocations_until_failure = 0;
    function();
    return std::exchange(cox::test::allocations_until_failure, -1) == 0;
  };
  SECTION("in a round") {
    CHECK(without_memory([&] { run_all(mailbox); }));
    run_all(mailbox);
  }
  SECTION("when it is closed") {
    mailbox.close();
    CHECK(without_memory([&] { mailbox.quiesce(); }));
    run_all(mailbox);
  }
  CHECK(log.ran == expected);
}

TEST_CASE("L2: a push that is under way when the mailbox settles is run once", "[mailbox]") {
  // The producer has published its task and is about to put its lane among the arrivals, when the device thread
  // settles.
  Log log;
  cox::BasicMailbox<HookedPlatform> mailbox;
  Gate published;
  Gate settling;
  auto& lane = mailbox.acquire_lane();
  std::thread producer([&] {
    int barriers = 0;
    HookedPlatform::at_light_barrier = [&] {
      if (++barriers == 2) {
        published.open();
        settling.wait();
      }
    };
    mailbox.push(lane, Note{&log, 1}, 0);
    HookedPlatform::at_light_barrier = nullptr;
  });
  published.wait();
  mailbox.close();
  HookedPlatform::at_pause = [&] { settling.open(); };  // quiesce() has seen that the lane is busy
  mailbox.quiesce();
  HookedPlatform::at_pause = nullptr;
  producer.join();
  std::size_t ran = 0;
  for (int round = 0; round < 3; ++round) {
    ran += mailbox.run_ready([&](const auto& item) {
      if (item.ops == nullptr) return false;
      item.ops->run(item.object);
      return log.ran.size() < 2;
    });
  }
  CHECK(ran == 1);
  CHECK(log.ran == std::vector{1});
}
