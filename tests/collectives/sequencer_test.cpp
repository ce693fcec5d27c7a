#include <coxswain/tests/collectives/sequencer_bench.hpp>
#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/collectives/sequencer/sequencer.hpp>
#include <coxswain/device_handle/base/call_error.hpp>
#include <coxswain/runtime/communication/collective_error.hpp>

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>

using namespace cox;
using namespace std::chrono_literals;
using namespace cox::test;
using Kind = CollectiveError::Kind;

TEST_CASE("An operation is launched when all its ranks have submitted it, and nobody waits before") {
  Bench t;
  CHECK(t.submit(t.pair, 1, of_count(4), t.a.launch()) == 1);
  CHECK(t.a.times() == 0);
  CHECK(t.submit(t.pair, 1, of_count(5), t.b.launch()) == 2);
  CHECK(t.submit(t.pair, 0, of_count(4), t.c.launch()) == 1);
  REQUIRE(t.a.times() == 1);
  REQUIRE(t.c.times() == 1);
  CHECK(t.b.times() == 0);
  CHECK(t.a.turns[0].order == t.c.turns[0].order);
  CHECK_FALSE(t.a.turns[0].refusal);
  t.submit(t.pair, 0, of_count(5), t.d.launch());
  REQUIRE(t.b.times() == 1);
  CHECK(t.b.turns[0].sequence == 2);
  CHECK(t.b.turns[0].order > t.a.turns[0].order);
}

TEST_CASE("A mismatch is told to every rank with both calls, and the communicator goes on") {
  Bench t;
  const CommunicatorNumber three = t.sequencer.open(among({0, 1, 2}), 1h);
  const CollectiveRequest first = of_count(4);
  const CollectiveRequest offending = of_count(8);
  t.submit(three, 2, first, t.a.launch());
  t.submit(three, 0, offending, t.b.launch());
  REQUIRE(t.a.times() == 1);  // At once: the third cannot mend it.
  REQUIRE(t.b.times() == 1);
  CHECK(t.a.refusal() == Kind::Mismatch);
  CHECK(t.a.turns[0].order == 0);
  CHECK(mentions(t.b.text(),
                 {"operation 1", "host:2", "host:0", "count", "4", "8", ":" + std::to_string(first.caller.site.line()),
                  ":" + std::to_string(offending.caller.site.line())}));
  t.submit(three, 1, first, t.c.launch());
  CHECK(t.c.refusal() == Kind::Mismatch);
  for (std::size_t rank = 0; rank < 3; ++rank) t.submit(three, rank, first, t.d.launch());
  REQUIRE(t.d.times() == 3);
  CHECK_FALSE(t.d.turns[2].refusal);
  CHECK(t.d.turns[2].order == 1);
  CHECK(t.a.times() + t.b.times() + t.c.times() == 3);
}

TEST_CASE("A refusal does not overtake what the rank asked for before") {
  Bench t;
  const CommunicatorNumber three = t.sequencer.open(among({0, 1, 2}), 1h);
  t.submit(three, 0, of_count(1), t.a.launch());
  t.submit(three, 1, of_count(1), t.b.launch());
  t.submit(three, 0, of_count(2), t.a.launch());
  t.submit(three, 1, of_count(3), t.b.launch());
  CHECK(t.a.times() == 0);
  SECTION("and comes when that is launched") {
    t.submit(three, 2, of_count(1), t.c.launch());
    REQUIRE(t.a.times() == 2);
    CHECK_FALSE(t.a.turns[0].refusal);
    CHECK(t.a.refusal() == Kind::Mismatch);
  }
  SECTION("and stays what it is when that is aborted") {
    t.sequencer.abort(three, nullptr);
    REQUIRE(t.a.times() == 2);
    CHECK(kind_of<CollectiveError>([&] { std::rethrow_exception(t.a.turns[0].refusal); }) == Kind::Aborted);
    CHECK(t.a.refusal() == Kind::Mismatch);
  }
}

TEST_CASE("L10: a rank that does not arrive is named, with its last operation and what its device does") {
  Bench t;
  const CommunicatorNumber four = t.sequencer.open(among({0, 1, 2, 3}), 1h);
  Told earlier;
  t.submit(four, 0, of_count(7), earlier.launch());
  t.submit(four, 1, of_count(8), earlier.launch());  // A mismatch: operation 1 is over.
  t.submit(four, 2, of_count(7), earlier.launch());
  REQUIRE(earlier.times() == 3);
  const CollectiveRequest missed = of_count(9);
  t.submit(four, 0, missed, t.a.launch());
  t.submit(four, 1, missed, t.b.launch());
  t.submit(four, 1, missed, t.b.launch());
  t.submit(t.pair, 0, missed, t.d.launch());

  CHECK(t.sequencer.expire(t.start + 1h - 1ns) == t.start + 1h);
  CHECK(t.a.times() == 0);
  t.submit(t.pair, 1, missed, t.d.launch());
  CHECK(t.d.times() == 2);
  CHECK_FALSE(t.sequencer.broken(four));
  CHECK_FALSE(t.sequencer.expire(t.start + 1h));
  REQUIRE(t.a.times() == 1);
  REQUIRE(t.b.times() == 2);
  CHECK(t.a.refusal() == Kind::Timeout);
  CHECK(t.b.refusal() == Kind::Timeout);
  const std::string text = t.a.text();
  CHECK(mentions(
      text, {"operation 2", "3600000 ms", "of 9 f32", line_of(missed),
             "host:2 is missing, its last submission was operation 1", "of 7 f32", "its device thread: busy with 2",
             "host:3 is missing, it has submitted nothing to this communicator", "busy with 3"}));
  CHECK_FALSE(mentions(text, {"host:1 is missing"}));

  CHECK(message_of([&] { std::rethrow_exception(t.sequencer.broken(four)); }) == text);
  CHECK(t.submit(four, 3, of_count(7), t.c.launch()) == 1);
  CHECK(t.c.refusal() == Kind::Mismatch);  // What became of operation 1 is known.
  for (std::uint64_t sequence = 2; sequence < 10; ++sequence) {
    CHECK(t.submit(four, 3, missed, t.c.launch()) == sequence);
    CHECK(t.c.text() == text);
  }
  CHECK(t.c.times() == 9);
}

TEST_CASE("L10: a rank that arrives while the error is being written is not timed out") {
  const auto start = std::chrono::steady_clock::now();
  Told told;
  std::function<void()> submit_other;
  Sequencer sequencer({.device_activity =
                           [&](DeviceId) {
                             submit_other();
                             return std::string();
                           },
                       .now = [start] { return start; }});
  const CommunicatorNumber pair = sequencer.open(among({0, 1}), 1s);
  submit_other = [&] { sequencer.submit(pair, 1, {.requests = {of_count(1)}, .launch = told.launch()}); };
  sequencer.submit(pair, 0, {.requests = {of_count(1)}, .launch = told.launch()});
  CHECK_FALSE(sequencer.expire(start + 1s));
  REQUIRE(told.times() == 2);
  CHECK_FALSE(told.turns[0].refusal);
  CHECK_FALSE(told.turns[1].refusal);
  CHECK_FALSE(sequencer.broken(pair));
}

TEST_CASE("L10: the watchdog times out by itself, and ends when nothing is left to wait for") {
  Sequencer sequencer;
  const CommunicatorNumber pair = sequencer.open(among({0, 1}), 1ms);
  CHECK_FALSE(sequencer.watching());
  std::promise<std::exception_ptr> refused;
  sequencer.submit(pair, 0, {.requests = {of_count(1)}, .launch = launch_of([&](const LaunchGrant& grant) {
                                                          refused.set_value(grant.refusal);
                                                        })});
  const std::exception_ptr refusal = refused.get_future().get();
  CHECK(kind_of<CollectiveError>([&] { std::rethrow_exception(refusal); }) == Kind::Timeout);
  while (sequencer.watching()) std::this_thread::yield();
  CHECK(mentions(sequencer.recorder(pair)->to_json(), {"\"timed_out\""}));
}

TEST_CASE("An abort refuses what waits with its cause, once, and leaves other communicators alone") {
  Bench t;
  const CommunicatorNumber other = t.sequencer.open(among({1, 2}), 1h);
  t.submit(t.pair, 0, of_count(1), t.a.launch());
  t.submit(other, 0, of_count(1), t.d.launch());
  t.sequencer.abort(t.pair, std::make_exception_ptr(std::runtime_error("link down")));
  t.sequencer.abort(t.pair, std::make_exception_ptr(std::runtime_error("too late")));
  REQUIRE(t.a.times() == 1);
  CHECK(t.a.refusal() == Kind::Aborted);
  t.submit(t.pair, 1, of_count(1), t.b.launch());
  CHECK(mentions(t.b.text(), {"link down", "communicator 1"}));
  CHECK_FALSE(mentions(t.b.text(), {"too late"}));
  t.submit(other, 1, of_count(1), t.d.launch());
  CHECK(t.d.times() == 2);
  CHECK(t.submit(t.pair, 1, of_count(1), t.c.launch()) == 2);
  CHECK(t.c.text() == t.b.text());
  CHECK(message_of([&] { std::rethrow_exception(t.sequencer.broken(t.pair)); }) == t.b.text());
  CHECK_FALSE(t.sequencer.broken(other));
}

TEST_CASE("L2: closing answers what waits, and after it nothing is taken") {
  Told told;
  {
    Bench t;
    t.submit(t.pair, 0, of_count(1), t.a.launch());
    const auto recorder = t.sequencer.recorder(t.pair);
    t.sequencer.close(t.pair);
    t.sequencer.close(t.pair);
    CHECK(t.a.refusal() == Kind::Aborted);
    CHECK(kind_of<CollectiveError>([&] { t.submit(t.pair, 1, of_count(1), t.b.launch()); }) == Kind::Aborted);
    CHECK(t.b.times() == 0);
    CHECK(kind_of<CollectiveError>([&] { std::rethrow_exception(t.sequencer.broken(t.pair)); }) == Kind::Aborted);
    CHECK(mentions(recorder->to_json(), {"\"failed\""}));
    const CommunicatorNumber again = t.sequencer.open(among({0, 1}), 1h);
    CHECK(again != t.pair);
    t.submit(again, 1, of_count(1), told.launch());
  }
  REQUIRE(told.times() == 1);
  CHECK(told.refusal() == Kind::Aborted);
}

TEST_CASE("L7: a rank gets only so far ahead, and can go on when the others have caught up") {
  Bench t;
  for (int i = 0; i < 3; ++i) t.submit(t.pair, 0, of_count(1), t.a.launch());
  const auto one_more = [&] { t.submit(t.pair, 0, of_count(1), t.a.launch()); };
  CHECK(kind_of<CallError>(one_more) == CallError::Kind::QueueFull);
  CHECK(mentions(message_of(one_more), {"host:0", "3 operations", "host:1"}));
  t.submit(t.pair, 1, of_count(1), t.b.launch());
  one_more();
  CHECK(t.a.times() == 1);
  CHECK(kind_of<CollectiveError>([&] { t.submit(t.pair, 2, of_count(1), t.c.launch()); }) == Kind::Validation);
}

TEST_CASE("A launch may submit, and one that throws aborts its communicator") {
  Bench t;
  t.submit(t.pair, 0, of_count(1),
           launch_of([&](const LaunchGrant&) { t.submit(t.pair, 0, of_count(2), t.a.launch()); }));
  t.submit(t.pair, 1, of_count(1), launch_of([](const LaunchGrant&) { throw std::runtime_error("no launch"); }));
  REQUIRE(t.a.times() == 1);
  CHECK(t.a.refusal() == Kind::Aborted);
  CHECK(mentions(t.a.text(), {"no launch"}));
}

TEST_CASE("L6: what a launch holds is gone when it has been called") {
  Bench t;
  auto held = std::make_shared<int>(1);
  const std::weak_ptr<int> seen = held;
  t.submit(t.pair, 0, of_count(1), launch_of([held = std::move(held)](const LaunchGrant&) {}));
  CHECK_FALSE(seen.expired());
  t.submit(t.pair, 1, of_count(1), t.b.launch());
  CHECK(seen.expired());
}
