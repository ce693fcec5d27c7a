// Ranks that cannot take part, devices that leave, groups, and what rank 0 shares.

#include <coxswain/tests/collectives/sequencer_bench.hpp>
#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/collectives/sequencer/sequencer.hpp>
#include <coxswain/device_handle/base/call_error.hpp>

#include <nlohmann/json.hpp>

#include <chrono>
#include <cstddef>
#include <exception>
#include <memory>
#include <stdexcept>
#include <utility>

using namespace cox;
using namespace cox::test;
using namespace std::chrono_literals;
using Kind = CollectiveError::Kind;

namespace {

struct Three : Bench {
  CommunicatorNumber three = sequencer.open(among({0, 1, 2}), 1h);
  std::exception_ptr broke = std::make_exception_ptr(std::runtime_error("out of memory"));

  void fail(std::size_t rank, Told& told) {
    sequencer.submit(three, rank, {.requests = {of_count(1)}, .failure = broke, .launch = told.launch()});
  }
  [[nodiscard]] std::string why_broken() const {
    return message_of([&] { std::rethrow_exception(sequencer.broken(three)); });
  }
};

void rethrow_cause(const Told& told) {
  try {
    told.refused();
  } catch (const CollectiveError& error) {
    if (error.cause()) std::rethrow_exception(error.cause());
  }
}

}  // namespace

TEST_CASE("A rank that cannot take part has the operation refused for all, and the communicator goes on") {
  Three t;
  t.submit(t.three, 2, of_count(1), t.a.launch());
  t.fail(1, t.b);
  REQUIRE(t.a.times() == 1);
  REQUIRE(t.b.times() == 1);
  CHECK(t.a.refusal() == Kind::RankFailed);
  CHECK(mentions(t.a.text(), {"operation 1 of communicator 2 {", "host:1 could not take part: out of memory"}));
  CHECK(message_of([&] { rethrow_cause(t.b); }) == "out of memory");
  t.submit(t.three, 0, of_count(7), t.c.launch());  // Nobody compares any more.
  CHECK(t.c.refusal() == Kind::RankFailed);
  CHECK_FALSE(t.sequencer.broken(t.three));
  for (std::size_t rank = 0; rank < 3; ++rank) CHECK(t.submit(t.three, rank, of_count(1), t.d.launch()) == 2);
  REQUIRE(t.d.times() == 3);
  CHECK_FALSE(t.d.turns[0].refusal);
}

TEST_CASE("The failure of a rank that comes first, or of two, is told to all once") {
  Three t;
  t.fail(0, t.a);
  CHECK(t.a.refusal() == Kind::RankFailed);
  t.fail(1, t.b);
  CHECK(t.b.turns[0].refusal == t.a.turns[0].refusal);
  t.submit(t.three, 2, of_count(1), t.c.launch());
  CHECK(t.c.turns[0].refusal == t.a.turns[0].refusal);
}

TEST_CASE("A failure does not overtake what the rank asked for before") {
  Three t;
  t.submit(t.three, 0, of_count(1), t.a.launch());
  t.submit(t.three, 1, of_count(1), t.b.launch());
  t.fail(0, t.a);
  t.submit(t.three, 1, of_count(1), t.b.launch());
  CHECK(t.a.times() + t.b.times() == 0);
  t.submit(t.three, 2, of_count(1), t.c.launch());
  REQUIRE(t.a.times() == 2);
  REQUIRE(t.b.times() == 2);
  CHECK_FALSE(t.a.turns[0].refusal);
  CHECK(t.a.refusal() == Kind::RankFailed);
  CHECK(t.c.times() == 1);
  t.submit(t.three, 2, of_count(1), t.c.launch());
  CHECK(t.c.refusal() == Kind::RankFailed);
}

TEST_CASE("A group is one operation, and compared operation by operation") {
  Bench t;
  const auto submit = [&](std::size_t rank, CollectiveRequests requests, Told& told) {
    return t.sequencer.submit(t.pair, rank, {.requests = std::move(requests), .launch = told.launch()});
  };
  CHECK(submit(0, {of_count(1), of_count(2), of_count(3)}, t.a) == 1);
  CHECK(submit(1, {of_count(1), of_count(2), of_count(3)}, t.a) == 1);
  REQUIRE(t.a.times() == 2);
  CHECK_FALSE(t.a.turns[0].refusal);
  const auto entries = nlohmann::json::parse(t.sequencer.recorder(t.pair)->to_json())["entries"];
  CHECK(entries[0]["group_size"] == 3);
  SECTION("as many") {
    submit(0, {of_count(1)}, t.b);
    submit(1, {of_count(1), of_count(1)}, t.b);
    CHECK(mentions(t.b.text(), {"operation 2", "the group has 1 operations", "and 2"}));
  }
  SECTION("each") {
    submit(0, {of_count(1), of_count(2)}, t.b);
    submit(1, {of_count(1), of_count(9)}, t.b);
    CHECK(mentions(t.b.text(), {"in operation 2 of the group, the count is 2", "and 9"}));
  }
  REQUIRE(t.b.times() == 2);
  CHECK(t.b.refusal() == Kind::Mismatch);
  CHECK(kind_of<CollectiveError>([&] { submit(0, {}, t.c); }) == Kind::Validation);
  CHECK(submit(0, {of_count(1)}, t.c) == 3);
}

TEST_CASE("What rank 0 hands in is given to all launches, and gone after them") {
  Three t;
  auto shared = std::make_shared<int>(7);
  const std::weak_ptr<int> seen = shared;
  const auto submit = [&](std::size_t rank, std::shared_ptr<void> share, Told& told) {
    t.sequencer.submit(t.three, rank,
                       {.requests = {of_count(1)}, .operation = std::move(share), .launch = told.launch()});
  };
  SECTION("whoever comes last") {
    submit(1, std::make_shared<int>(8), t.b);
    submit(0, std::move(shared), t.a);
    submit(2, nullptr, t.c);
  }
  SECTION("refused, to those who are told after rank 0 came") {
    t.fail(1, t.b);
    CHECK(t.b.turns[0].operation == nullptr);
    t.b.turns[0] = {};
    submit(0, std::move(shared), t.a);
    submit(2, nullptr, t.c);
    t.b = t.a;
  }
  for (Told* told : {&t.a, &t.b, &t.c}) {
    REQUIRE(told->times() == 1);
    CHECK(told->turns[0].operation == seen.lock());
    CHECK(told->turns[0].operation != nullptr);
    told->turns.clear();
  }
  CHECK(seen.expired());
}

TEST_CASE("What rank 0 hands in ends with no lock held") {
  Three t;
  bool ended = false;
  const auto end = [&](const int* shared) {
    ended = true;
    CHECK(t.sequencer.recorder(t.pair));  // Under the lock it would wait for itself.
    delete shared;
  };
  const auto launch = [] { return launch_of([](const LaunchGrant&) {}); };
  t.submit(t.three, 1, of_count(1), launch());
  t.sequencer.submit(
      t.three, 0, {.requests = {of_count(2)}, .operation = std::shared_ptr<int>(new int(7), end), .launch = launch()});
  CHECK_FALSE(ended);  // A mismatch, but a rank is still to be told.
  SECTION("when the last rank is told") { t.submit(t.three, 2, of_count(1), launch()); }
  SECTION("when the communicator is closed") { t.sequencer.close(t.three); }
  CHECK(ended);
}

TEST_CASE("A device that leaves lets what it submitted end, and everything after it is refused") {
  Three t;
  t.submit(t.three, 2, of_count(1), t.c.launch());
  t.submit(t.three, 0, of_count(1), t.a.launch());
  t.submit(t.three, 0, of_count(2), t.a.launch());
  t.submit(t.pair, 0, of_count(1), t.d.launch());
  t.sequencer.leave(device(2));
  t.sequencer.leave(device(2));
  CHECK(t.a.times() == 0);  // What it waits for may come, and its answers keep their order.
  CHECK(mentions(t.why_broken(), {"communicator 2 {", "after operation 1", "host:2 was shut down"}));
  CHECK_FALSE(t.sequencer.broken(t.pair));
  CHECK(t.sequencer.refuses_all_of(t.three, 0));
  CHECK_FALSE(t.sequencer.refuses_all_of(t.three, 1));  // The others wait for it.
  CHECK_FALSE(t.sequencer.refuses_all_of(t.pair, 0));
  t.submit(t.three, 1, of_count(1), t.b.launch());
  CHECK(t.sequencer.refuses_all_of(t.three, 1));
  REQUIRE(t.a.times() == 2);
  REQUIRE(t.c.times() == 1);
  CHECK_FALSE(t.a.turns[0].refusal);
  CHECK_FALSE(t.c.turns[0].refusal);
  CHECK(t.a.refusal() == Kind::Aborted);
  CHECK(mentions(t.a.text(), {"host:2 was shut down"}));
  t.submit(t.three, 1, of_count(2), t.b.launch());
  REQUIRE(t.b.times() == 2);
  CHECK(t.b.refusal() == Kind::Aborted);
  CHECK(t.submit(t.three, 2, of_count(2), t.c.launch()) == 2);
  CHECK(t.c.refusal() == Kind::Aborted);
  CHECK(t.d.times() == 0);
  t.submit(t.pair, 1, of_count(1), t.d.launch());
  CHECK(t.d.times() == 2);
}

TEST_CASE("After one device has left, another may leave earlier operations, an abort or a deadline end the rest") {
  Three t;
  t.submit(t.three, 2, of_count(1), t.c.launch());
  t.submit(t.three, 2, of_count(1), t.c.launch());
  t.submit(t.three, 0, of_count(1), t.a.launch());
  t.sequencer.leave(device(2));
  CHECK(t.c.times() == 0);
  SECTION("leave") {
    t.sequencer.leave(device(0));
    CHECK(t.c.times() == 0);
    t.sequencer.leave(device(1));
    REQUIRE(t.c.times() == 2);
    CHECK(mentions(message_of([&] { std::rethrow_exception(t.c.turns[0].refusal); }), {"host:1 was shut down"}));
    CHECK(mentions(t.c.text(), {"host:0 was shut down"}));
  }
  SECTION("abort") {
    t.sequencer.abort(t.three, t.broke);
    REQUIRE(t.c.times() == 2);
    CHECK(mentions(t.c.text(), {"was aborted: out of memory"}));
  }
  SECTION("deadline") {
    t.sequencer.expire(t.start + 1h);
    REQUIRE(t.c.times() == 2);
    CHECK(t.c.refusal() == Kind::Timeout);
  }
  CHECK(mentions(t.why_broken(), {"host:2 was shut down"}));  // The first error stays.
  for (int i = 0; i < 10; ++i) t.submit(t.three, 1, of_count(1), t.b.launch());
  CHECK(t.b.times() == 10);
  t.submit(t.three, 0, of_count(1), t.a.launch());
  CHECK(t.a.times() == 2);
}

TEST_CASE("L7: a rank gets only so far ahead of one that is behind a refused operation or a device that has left") {
  Three t;
  const auto fill = [&] {
    for (int i = 0; i < 3; ++i) t.submit(t.three, 0, of_count(1), t.a.launch());
    CHECK(kind_of<CallError>([&] { t.submit(t.three, 0, of_count(1), t.a.launch()); }) == CallError::Kind::QueueFull);
  };
  SECTION("refused") {
    t.fail(2, t.c);
    fill();
    CHECK(t.a.times() == 1);
  }
  SECTION("left") {
    t.submit(t.three, 2, of_count(1), t.c.launch());
    t.sequencer.leave(device(2));
    fill();
    CHECK(t.a.times() == 0);
    t.submit(t.three, 1, of_count(1), t.b.launch());
    CHECK(t.a.times() == 3);
  }
}
