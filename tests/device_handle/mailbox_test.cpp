// The mailbox by itself, on one thread; and moments between two threads that a platform with hooks makes certain.
// tests/model runs it in every interleaving.

#include <coxswain/tests/device_handle/contract.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/device_handle/mailbox.hpp>

#include <functional>

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
  cox::Mailbox mailbox;
  Log log;
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
  cox::Mailbox mailbox;
  Log log;
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
  cox::Mailbox mailbox;
  Log log;
  auto& lane = mailbox.acquire_lane();
  mailbox.push(lane, Note{&log, 1}, 0);
  mailbox.close();
  mailbox.close();
  CHECK(mailbox.closing());
  CHECK(mailbox.push(lane, Note{&log, 2}, 0) == PushResult::Closed);
  mailbox.settle();
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
  cox::Mailbox mailbox;
  Log log;
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

TEST_CASE("L2: a push that is under way when the mailbox settles is run once", "[mailbox]") {
  // The producer has published its task and is about to put its lane among the arrivals, when the device thread
  // settles.
  cox::BasicMailbox<HookedPlatform> mailbox;
  Log log;
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
  HookedPlatform::at_pause = [&] { settling.open(); };  // settle() has seen that the lane is busy
  mailbox.settle();
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
