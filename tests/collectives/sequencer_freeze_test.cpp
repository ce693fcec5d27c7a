#include <coxswain/tests/collectives/sequencer_bench.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <latch>
#include <memory>
#include <string>

using namespace cox;
using namespace cox::test;
using namespace std::chrono_literals;

namespace {

/// A clock that the test moves.
struct Frozen {
  Told a, b;
  Watchdog::Time start = std::chrono::steady_clock::now();
  std::shared_ptr<std::atomic<std::int64_t>> minutes = std::make_shared<std::atomic<std::int64_t>>(0);
  Sequencer sequencer{{.now = [start = start, minutes = minutes] { return start + std::chrono::minutes(*minutes); }}};
  CommunicatorNumber pair = sequencer.open(among({0, 1}), 1h);

  void submit(std::size_t rank, Told& told) {
    static_cast<void>(sequencer.submit(pair, rank, {.requests = {of_count(1)}, .launch = told.launch()}));
  }
};

}  // namespace

TEST_CASE("No deadline passes while the sequencer is frozen, and all are moved by as long") {
  Frozen t;
  t.submit(0, t.a);
  t.sequencer.freeze();
  t.sequencer.freeze();
  *t.minutes = 90;
  CHECK(t.sequencer.expire(t.start + 90min).has_value());
  CHECK(t.a.times() == 0);
  t.sequencer.thaw();
  t.sequencer.expire(t.start + 90min);
  CHECK(t.a.times() == 0);
  t.sequencer.thaw();
  t.sequencer.expire(t.start + 149min);
  CHECK(t.a.times() == 0);
  t.sequencer.expire(t.start + 150min);
  CHECK(t.a.refusal() == CollectiveError::Kind::Timeout);
}

TEST_CASE("What is asked for in a frozen sequencer is released when all are there") {
  Frozen t;
  t.sequencer.freeze();
  t.submit(0, t.a);
  t.submit(1, t.b);
  CHECK(t.a.times() == 1);
  CHECK(t.b.times() == 1);
  CHECK_FALSE(t.a.refusal());
  t.sequencer.thaw();
}

namespace {

/// Operation 1 of `pair` has all its ranks and waits for operation 1 of `other`, which has one of its two.
struct Held : Bench {
  CommunicatorNumber other = sequencer.open(among({0, 2}), 1h);

  Held() {
    submit(other, 0, of_count(1), c.launch());
    submit(pair, 0, of_count(1), a.launch(), {{other, 1}});
    sequencer.submit(pair, 1, {.requests = {of_count(1)}, .launch = b.launch(), .on_launch_thread = true});
  }
};

}  // namespace

TEST_CASE("T1: what becomes free while the sequencer is frozen is released by thaw(), however it becomes free") {
  Held t;
  t.sequencer.freeze();
  t.sequencer.freeze();
  SECTION("by an abort") { t.sequencer.abort(t.other, nullptr); }
  SECTION("by closing") { t.sequencer.close(t.other); }
  SECTION("by a device that leaves, with its own operations") {
    t.sequencer.leave(device(2));
    t.sequencer.leave(device(0));
    t.sequencer.abort(t.other, nullptr);
  }
  SECTION("by a mismatch") { t.submit(t.other, 1, of_count(2), t.d.launch()); }
  SECTION("by a submission, which is released itself") {
    t.submit(t.other, 1, of_count(1), t.d.launch());
    CHECK(t.d.times() == 1);
    CHECK_FALSE(t.d.refusal());
  }
  CHECK(t.c.times() == 1);
  CHECK(t.a.times() + t.b.times() == 0);
  t.sequencer.leave(device(1));  // does not concern what it has submitted
  CHECK(t.a.times() + t.b.times() == 0);
  t.sequencer.thaw();
  CHECK(t.a.times() + t.b.times() == 0);
  t.sequencer.thaw();
  REQUIRE(t.a.times() == 1);
  REQUIRE(t.b.times() == 1);
  CHECK_FALSE(t.a.refusal());
  CHECK_FALSE(t.b.refusal());
}

TEST_CASE("What is free while the sequencer is frozen can still be refused") {
  Held t;
  t.sequencer.freeze();
  t.sequencer.abort(t.other, nullptr);
  SECTION("by an abort") { t.sequencer.abort(t.pair, nullptr); }
  SECTION("by closing") { t.sequencer.close(t.pair); }
  CHECK(t.a.refusal() == CollectiveError::Kind::Aborted);
  CHECK(t.b.refusal() == CollectiveError::Kind::Aborted);
  t.sequencer.thaw();
  CHECK(t.a.times() == 1);
  CHECK(t.b.times() == 1);
}

TEST_CASE("A deadline that has passed has no effect if the sequencer is frozen while the error is made") {
  Told a;
  Sequencer* frozen = nullptr;
  const Watchdog::Time start = std::chrono::steady_clock::now();
  Sequencer sequencer{{.device_activity =
                           [&](DeviceId) {
                             frozen->freeze();
                             return std::string();
                           },
                       .now = [&] { return start; }}};
  frozen = &sequencer;
  const CommunicatorNumber pair = sequencer.open(among({0, 1}), 1h);
  sequencer.submit(pair, 0, {.requests = {of_count(1)}, .launch = a.launch()});
  sequencer.expire(start + 1h);
  CHECK(a.times() == 0);
  sequencer.thaw();
}

TEST_CASE("T1: freeze() returns when the launch threads know of all that was released, whatever released it") {
  Held t;
  std::latch notifying(1);
  std::latch go_on(1);
  t.sequencer.set_launch_thread(device(1), [&] {
    notifying.count_down();
    go_on.wait();
  });
  std::function<void()> release;
  SECTION("an abort") {
    release = [&] { t.sequencer.abort(t.other, nullptr); };
  }
  SECTION("a submission") {
    release = [&] { t.submit(t.other, 1, of_count(1), t.d.launch()); };
  }
  SECTION("the end of a freeze") {
    t.sequencer.freeze();
    t.sequencer.abort(t.other, nullptr);
    release = [&] { t.sequencer.thaw(); };
  }
  auto releasing = std::async(std::launch::async, release);
  notifying.wait();
  auto freezing = std::async(std::launch::async, [&] { t.sequencer.freeze(); });
  CHECK(freezing.wait_for(50ms) == std::future_status::timeout);
  go_on.count_down();
  releasing.get();
  freezing.get();
  t.sequencer.thaw();
  t.sequencer.drain_launches(device(1));
  CHECK(t.b.times() == 1);
}
