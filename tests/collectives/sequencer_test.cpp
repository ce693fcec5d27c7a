#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/collectives/sequencer.hpp>
#include <coxswain/device_handle/call_error.hpp>
#include <coxswain/runtime/communication/collective_error.hpp>

#include <chrono>
#include <cstdint>
#include <exception>
#include <future>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

using namespace cox;
using namespace std::chrono_literals;
using cox::test::kind_of;
using cox::test::mentions;
using cox::test::message_of;
using Kind = CollectiveError::Kind;

namespace {

constexpr DeviceId device(std::uint16_t index) { return {.type = 0, .index = index}; }

CommunicationId among(const std::vector<std::uint16_t>& indices) {
  std::vector<DeviceId> devices;
  for (const std::uint16_t index : indices) devices.push_back(device(index));
  return CommunicationId(devices);
}

CollectiveRequest of_count(std::size_t count, std::source_location site = std::source_location::current()) {
  return {.count = count, .caller = {.site = site}};
}

/// What a rank was told, and how often.
struct Told {
  std::vector<LaunchTurn> turns;

  Launch launch() {
    return [this](const LaunchTurn& turn) { turns.push_back(turn); };
  }
  [[nodiscard]] std::size_t times() const { return turns.size(); }
  void refused() const {
    if (turns.back().refusal) std::rethrow_exception(turns.back().refusal);
  }
};

std::optional<Kind> refusal_of(const Told& told) {
  return kind_of<CollectiveError>([&] { told.refused(); });
}
std::string text_of(const Told& told) {
  return message_of([&] { told.refused(); });
}

/// Time stands still, so that only expire() times anything out.
struct Bench {
  Told a, b, c, d;  // They outlive the sequencer, which answers everybody at its end.
  Watchdog::Time start = std::chrono::steady_clock::now();
  Sequencer sequencer{{.max_ahead = 3,
                       .device_activity = [](DeviceId id) { return "busy with " + std::to_string(id.index); },
                       .now = [start = start] { return start; }}};
  CommunicatorNumber pair = sequencer.open(among({0, 1}), 1h);
};

}  // namespace

TEST_CASE("An operation is launched when all its ranks have submitted it, and nobody waits before") {
  Bench t;
  CHECK(t.sequencer.submit(t.pair, 1, of_count(4), t.a.launch()) == 1);
  CHECK(t.a.times() == 0);
  CHECK(t.sequencer.submit(t.pair, 1, of_count(5), t.b.launch()) == 2);
  CHECK(t.sequencer.submit(t.pair, 0, of_count(4), t.c.launch()) == 1);
  REQUIRE(t.a.times() == 1);
  REQUIRE(t.c.times() == 1);
  CHECK(t.b.times() == 0);
  CHECK(t.a.turns[0].order == t.c.turns[0].order);
  CHECK_FALSE(t.a.turns[0].refusal);
  t.sequencer.submit(t.pair, 0, of_count(5), t.d.launch());
  REQUIRE(t.b.times() == 1);
  CHECK(t.b.turns[0].sequence == 2);
  CHECK(t.b.turns[0].order > t.a.turns[0].order);
}

TEST_CASE("A mismatch is told to every rank with both calls, and the communicator goes on") {
  Bench t;
  const CommunicatorNumber three = t.sequencer.open(among({0, 1, 2}), 1h);
  const CollectiveRequest first = of_count(4);
  const CollectiveRequest offending = of_count(8);
  t.sequencer.submit(three, 2, first, t.a.launch());
  t.sequencer.submit(three, 0, offending, t.b.launch());
  REQUIRE(t.a.times() == 1);  // At once: the third cannot mend it.
  REQUIRE(t.b.times() == 1);
  CHECK(refusal_of(t.a) == Kind::Mismatch);
  CHECK(mentions(text_of(t.b),
                 {"operation 1", "index=2", "index=0", "count", "4", "8",
                  ":" + std::to_string(first.caller.site.line()), ":" + std::to_string(offending.caller.site.line())}));
  t.sequencer.submit(three, 1, first, t.c.launch());
  CHECK(refusal_of(t.c) == Kind::Mismatch);
  for (std::size_t rank = 0; rank < 3; ++rank) t.sequencer.submit(three, rank, first, t.d.launch());
  REQUIRE(t.d.times() == 3);
  CHECK_FALSE(t.d.turns[2].refusal);
  CHECK(t.a.times() + t.b.times() + t.c.times() == 3);
}

TEST_CASE("A refusal does not overtake what the rank asked for before") {
  Bench t;
  const CommunicatorNumber three = t.sequencer.open(among({0, 1, 2}), 1h);
  t.sequencer.submit(three, 0, of_count(1), t.a.launch());
  t.sequencer.submit(three, 1, of_count(1), t.b.launch());
  t.sequencer.submit(three, 0, of_count(2), t.a.launch());
  t.sequencer.submit(three, 1, of_count(3), t.b.launch());
  CHECK(t.a.times() == 0);
  SECTION("and comes when that is launched") {
    t.sequencer.submit(three, 2, of_count(1), t.c.launch());
    REQUIRE(t.a.times() == 2);
    CHECK_FALSE(t.a.turns[0].refusal);
    CHECK(refusal_of(t.a) == Kind::Mismatch);
  }
  SECTION("and stays what it is when that is aborted") {
    t.sequencer.abort(three, nullptr);
    REQUIRE(t.a.times() == 2);
    CHECK(kind_of<CollectiveError>([&] { std::rethrow_exception(t.a.turns[0].refusal); }) == Kind::Aborted);
    CHECK(refusal_of(t.a) == Kind::Mismatch);
  }
}

TEST_CASE("L10: a rank that does not arrive is named, with its last operation and what its device does") {
  Bench t;
  const CommunicatorNumber four = t.sequencer.open(among({0, 1, 2, 3}), 1h);
  Told earlier;
  for (const std::size_t rank : {0U, 1U, 2U}) t.sequencer.submit(four, rank, of_count(7), earlier.launch());
  t.sequencer.abort(four, nullptr);
  t.sequencer.reopen(four);
  const CollectiveRequest missed = of_count(9);
  t.sequencer.submit(four, 0, missed, t.a.launch());
  t.sequencer.submit(four, 1, missed, t.b.launch());
  t.sequencer.submit(four, 1, missed, t.b.launch());
  t.sequencer.submit(t.pair, 0, missed, t.d.launch());

  CHECK(t.sequencer.expire(t.start + 1h - 1ns) == t.start + 1h);
  CHECK(t.a.times() == 0);
  t.sequencer.submit(t.pair, 1, missed, t.d.launch());
  CHECK(t.d.times() == 2);
  CHECK_FALSE(t.sequencer.expire(t.start + 1h));
  REQUIRE(t.a.times() == 1);
  REQUIRE(t.b.times() == 2);
  CHECK(refusal_of(t.a) == Kind::Timeout);
  CHECK(refusal_of(t.b) == Kind::Timeout);
  const std::string text = text_of(t.a);
  CHECK(mentions(text, {"operation 2", "3600000 ms", "of 9 f32", ":" + std::to_string(missed.caller.site.line()),
                        "DeviceId(type=0, index=2) is missing, its last there was operation 1", "of 7 f32",
                        "its device thread: busy with 2",
                        "DeviceId(type=0, index=3) is missing, it has submitted nothing there", "busy with 3"}));
  CHECK_FALSE(mentions(text, {"index=1) is missing"}));

  t.sequencer.submit(four, 3, missed, t.c.launch());
  CHECK(refusal_of(t.c) == Kind::Timeout);
  CHECK(text_of(t.c) == text);
  t.sequencer.reopen(four);
  for (std::size_t rank = 0; rank < 4; ++rank) CHECK(t.sequencer.submit(four, rank, missed, t.c.launch()) == 4);
  CHECK(t.c.times() == 5);
  CHECK_FALSE(t.c.turns.back().refusal);
}

TEST_CASE("L10: a rank that arrives while the error is being written is not timed out") {
  const auto start = std::chrono::steady_clock::now();
  Told told;
  Sequencer* sequencer = nullptr;
  CommunicatorNumber pair{};
  Sequencer made({.device_activity =
                      [&](DeviceId) {
                        sequencer->submit(pair, 1, of_count(1), told.launch());
                        return std::string();
                      },
                  .now = [start] { return start; }});
  sequencer = &made;
  pair = made.open(among({0, 1}), 1s);
  made.submit(pair, 0, of_count(1), told.launch());
  CHECK_FALSE(made.expire(start + 1s));
  REQUIRE(told.times() == 2);
  CHECK_FALSE(told.turns[0].refusal);
  CHECK_FALSE(told.turns[1].refusal);
}

TEST_CASE("L10: the watchdog times out by itself, and ends when nothing is left to wait for") {
  Sequencer sequencer;
  const CommunicatorNumber pair = sequencer.open(among({0, 1}), 1ms);
  CHECK_FALSE(sequencer.watching());
  std::promise<std::exception_ptr> refused;
  sequencer.submit(pair, 0, of_count(1), [&](const LaunchTurn& turn) { refused.set_value(turn.refusal); });
  const std::exception_ptr refusal = refused.get_future().get();
  CHECK(kind_of<CollectiveError>([&] { std::rethrow_exception(refusal); }) == Kind::Timeout);
  while (sequencer.watching()) std::this_thread::yield();
  CHECK(mentions(sequencer.recorder(pair)->to_json(), {"\"timed_out\""}));
}

TEST_CASE("An abort refuses what waits with its cause, once, and leaves other communicators alone") {
  Bench t;
  const CommunicatorNumber other = t.sequencer.open(among({1, 2}), 1h);
  t.sequencer.submit(t.pair, 0, of_count(1), t.a.launch());
  t.sequencer.submit(other, 0, of_count(1), t.d.launch());
  t.sequencer.abort(t.pair, std::make_exception_ptr(std::runtime_error("link down")));
  t.sequencer.abort(t.pair, std::make_exception_ptr(std::runtime_error("too late")));
  REQUIRE(t.a.times() == 1);
  CHECK(refusal_of(t.a) == Kind::Aborted);
  t.sequencer.submit(t.pair, 1, of_count(1), t.b.launch());
  CHECK(mentions(text_of(t.b), {"link down", "communicator 1"}));
  CHECK_FALSE(mentions(text_of(t.b), {"too late"}));
  t.sequencer.submit(other, 1, of_count(1), t.d.launch());
  CHECK(t.d.times() == 2);
  t.sequencer.reopen(t.pair);
  CHECK(t.sequencer.submit(t.pair, 1, of_count(1), t.c.launch()) == 2);
  CHECK(t.sequencer.submit(t.pair, 0, of_count(1), t.c.launch()) == 2);
  CHECK_FALSE(t.c.turns.back().refusal);
}

TEST_CASE("A device that is lost takes its communicators with it and no others") {
  Bench t;
  const CommunicatorNumber with = t.sequencer.open(among({1, 2}), 1h);
  const CommunicatorNumber without = t.sequencer.open(among({0, 1}), 1h);
  t.sequencer.submit(with, 0, of_count(1), t.a.launch());
  t.sequencer.submit(without, 0, of_count(1), t.b.launch());
  t.sequencer.abort(device(2), nullptr);
  CHECK(refusal_of(t.a) == Kind::Aborted);
  CHECK(t.b.times() == 0);
}

TEST_CASE("L2: closing answers what waits, and after it nothing is taken") {
  Told told;
  {
    Bench t;
    t.sequencer.submit(t.pair, 0, of_count(1), t.a.launch());
    const auto recorder = t.sequencer.recorder(t.pair);
    t.sequencer.close(t.pair);
    t.sequencer.close(t.pair);
    CHECK(refusal_of(t.a) == Kind::Aborted);
    CHECK(kind_of<CollectiveError>([&] { t.sequencer.submit(t.pair, 1, of_count(1), t.b.launch()); }) == Kind::Aborted);
    CHECK(t.b.times() == 0);
    CHECK(kind_of<CollectiveError>([&] { t.sequencer.reopen(t.pair); }) == Kind::Aborted);
    CHECK(mentions(recorder->to_json(), {"\"failed\""}));
    const CommunicatorNumber again = t.sequencer.open(among({0, 1}), 1h);
    CHECK(again != t.pair);
    t.sequencer.submit(again, 1, of_count(1), told.launch());
  }
  REQUIRE(told.times() == 1);
  CHECK(refusal_of(told) == Kind::Aborted);
}

TEST_CASE("L7: a rank gets only so far ahead, and can go on when the others have caught up") {
  Bench t;
  for (int i = 0; i < 3; ++i) t.sequencer.submit(t.pair, 0, of_count(1), t.a.launch());
  const auto one_more = [&] { t.sequencer.submit(t.pair, 0, of_count(1), t.a.launch()); };
  CHECK(kind_of<CallError>(one_more) == CallError::Kind::QueueFull);
  CHECK(mentions(message_of(one_more), {"index=0", "3 operations", "index=1"}));
  t.sequencer.submit(t.pair, 1, of_count(1), t.b.launch());
  one_more();
  CHECK(t.a.times() == 1);
  CHECK(kind_of<CollectiveError>([&] { t.sequencer.submit(t.pair, 2, of_count(1), t.c.launch()); }) ==
        Kind::Validation);
}

TEST_CASE("A launch may submit, and one that throws aborts its communicator") {
  Bench t;
  t.sequencer.submit(t.pair, 0, of_count(1),
                     [&](const LaunchTurn&) { t.sequencer.submit(t.pair, 0, of_count(2), t.a.launch()); });
  t.sequencer.submit(t.pair, 1, of_count(1), [](const LaunchTurn&) { throw std::runtime_error("no launch"); });
  REQUIRE(t.a.times() == 1);
  CHECK(refusal_of(t.a) == Kind::Aborted);
  CHECK(mentions(text_of(t.a), {"no launch"}));
}

TEST_CASE("L6: what a launch holds is gone when it has been called") {
  Bench t;
  auto held = std::make_shared<int>(1);
  const std::weak_ptr<int> seen = held;
  t.sequencer.submit(t.pair, 0, of_count(1), [held = std::move(held)](const LaunchTurn&) {});
  CHECK_FALSE(seen.expired());
  t.sequencer.submit(t.pair, 1, of_count(1), t.b.launch());
  CHECK(seen.expired());
}
