// Operations that wait for others, on other communicators.

#include <coxswain/tests/collectives/sequencer_bench.hpp>
#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/collectives/sequencer/sequencer.hpp>

#include <chrono>
#include <cstddef>
#include <vector>

using namespace cox;
using namespace cox::test;
using namespace std::chrono_literals;
using Kind = CollectiveError::Kind;

namespace {

/// A second communicator of the same devices, and one of three.
struct Overlap : Bench {
  CommunicatorNumber other = sequencer.open(among({0, 1}), 1h);
  CommunicatorNumber three = sequencer.open(among({0, 1, 2}), 2h);

  /// All ranks of an operation, none of which waits for anything.
  void complete(CommunicatorNumber communicator, std::size_t ranks, Told& told) {
    for (std::size_t rank = 0; rank < ranks; ++rank) submit(communicator, rank, of_count(1), told.launch());
  }
};

}  // namespace

TEST_CASE("A complete operation is held back until what one of its ranks waits for is released") {
  Overlap t;
  t.submit(t.pair, 0, of_count(1), t.a.launch());
  t.submit(t.other, 1, of_count(1), t.b.launch());
  t.submit(t.pair, 1, of_count(1), t.a.launch(), {{t.other, 1}});
  CHECK(t.a.times() == 0);
  t.submit(t.pair, 0, of_count(1), t.c.launch());
  t.submit(t.pair, 1, of_count(1), t.c.launch());
  CHECK(t.c.times() == 0);  // Its turn comes after the one that is held.
  t.submit(t.other, 0, of_count(1), t.b.launch());
  REQUIRE(t.a.times() == 2);
  REQUIRE(t.b.times() == 2);
  REQUIRE(t.c.times() == 2);
  CHECK(t.b.turns[0].order == 1);
  CHECK(t.a.turns[0].order == 2);
  CHECK(t.c.turns[0].order == 3);
}

TEST_CASE("An answer lets go a whole chain, in whatever order the communicators were opened") {
  Overlap t;
  const CommunicatorNumber last = t.sequencer.open(among({1, 2}), 1h);
  t.submit(t.pair, 0, of_count(1), t.a.launch(), {{t.other, 1}});
  t.submit(t.pair, 1, of_count(1), t.a.launch());
  t.submit(t.other, 0, of_count(1), t.b.launch(), {{t.three, 1}});
  t.submit(t.other, 1, of_count(1), t.b.launch(), {{last, 1}});
  t.submit(t.three, 1, of_count(1), t.c.launch(), {{last, 1}});
  t.submit(t.three, 2, of_count(1), t.c.launch());
  t.submit(t.three, 0, of_count(1), t.c.launch());
  CHECK(t.a.times() + t.b.times() + t.c.times() == 0);
  t.complete(last, 2, t.d);
  REQUIRE(t.a.times() == 2);
  CHECK(t.d.turns[0].order == 1);
  CHECK(t.c.turns[0].order == 2);
  CHECK(t.b.turns[0].order == 3);
  CHECK(t.a.turns[0].order == 4);
}

TEST_CASE("Everything that a rank waits for counts, and every rank's") {
  Overlap t;
  t.submit(t.pair, 0, of_count(1), t.a.launch(), {{t.other, 1}, {t.three, 1}, {t.three, 2}});
  t.submit(t.pair, 1, of_count(1), t.a.launch(), {{t.other, 2}});
  t.complete(t.other, 2, t.b);
  t.complete(t.three, 3, t.b);
  CHECK(t.a.times() == 0);
  SECTION("the last of one rank's list") {
    t.complete(t.other, 2, t.b);
    CHECK(t.a.times() == 0);
    t.complete(t.three, 3, t.b);
  }
  SECTION("the other rank's") {
    t.complete(t.three, 3, t.b);
    CHECK(t.a.times() == 0);
    t.complete(t.other, 2, t.b);
  }
  CHECK(t.a.times() == 2);
}

TEST_CASE("What is refused, closed, left or unknown holds nothing back") {
  Overlap t;
  t.submit(t.pair, 0, of_count(1), t.a.launch());
  const auto arrive = [&](const CollectiveId& after) { t.submit(t.pair, 1, of_count(1), t.a.launch(), {after}); };
  SECTION("a communicator that never was") { arrive({CommunicatorNumber{99}, 1}); }
  SECTION("one that is closed") {
    t.sequencer.close(t.other);
    arrive({t.other, 1});
  }
  SECTION("an operation that is answered") {
    t.complete(t.other, 2, t.b);
    arrive({t.other, 1});
  }
  SECTION("one that is refused later") {
    arrive({t.other, 1});
    t.submit(t.other, 0, of_count(1), t.b.launch());
    CHECK(t.a.times() == 0);
    SECTION("for a mismatch") { t.submit(t.other, 1, of_count(2), t.b.launch()); }
    SECTION("by an abort") { t.sequencer.abort(t.other, nullptr); }
    SECTION("by closing") { t.sequencer.close(t.other); }
    SECTION("by the deadline") {
      t.sequencer.expire(t.start + 1h);
      CHECK(t.b.refusal() == Kind::Timeout);
    }
  }
  SECTION("one that nobody asked for, when its communicator ends") {
    arrive({t.other, 3});
    CHECK(t.a.times() == 0);
    SECTION("by an abort") { t.sequencer.abort(t.other, nullptr); }
    SECTION("by closing") { t.sequencer.close(t.other); }
  }
  REQUIRE(t.a.times() == 2);
  CHECK_FALSE(t.a.turns[0].refusal);
}

TEST_CASE("A held operation is refused with its communicator, and the others go on") {
  Overlap t;
  t.submit(t.pair, 0, of_count(1), t.a.launch());
  t.submit(t.pair, 1, of_count(1), t.a.launch(), {{t.other, 1}});
  SECTION("by an abort") { t.sequencer.abort(t.pair, nullptr); }
  SECTION("by closing") { t.sequencer.close(t.pair); }
  REQUIRE(t.a.times() == 2);
  CHECK(t.a.refusal() == Kind::Aborted);
  t.complete(t.other, 2, t.b);
  CHECK(t.b.times() == 2);
  CHECK(t.a.times() == 2);
}

TEST_CASE("L10: a ring of two is refused for all its ranks, and the other operation goes on") {
  Overlap t;
  const CollectiveRequest waits = of_count(1);
  const CollectiveRequest closes = of_count(2);
  t.submit(t.pair, 0, of_count(2), t.a.launch());
  t.submit(t.other, 0, waits, t.b.launch(), {{t.pair, 1}});
  CHECK(t.submit(t.pair, 1, closes, t.a.launch(), {{t.other, 1}}) == 1);
  REQUIRE(t.a.times() == 2);
  CHECK(t.a.refusal() == Kind::WouldDeadlock);
  CHECK(t.a.turns[0].refusal == t.a.turns[1].refusal);
  CHECK(kind_of<CollectiveError>([&] { std::rethrow_exception(t.a.turns[0].refusal); }) == Kind::WouldDeadlock);
  const std::string text = t.a.text();
  const std::size_t at_closing = text.find("operation 1 of communicator 1 {");
  const std::size_t at_waiting = text.find("operation 1 of communicator 2 {");
  REQUIRE(at_waiting != std::string::npos);
  CHECK(at_closing < at_waiting);
  CHECK(mentions(text.substr(at_closing, at_waiting - at_closing), {line_of(closes), "host:1 waits for"}));
  CHECK(mentions(text.substr(at_waiting), {line_of(waits), "host:0, which waits for the first operation"}));
  CHECK_FALSE(t.sequencer.broken(t.pair));
  t.submit(t.other, 1, waits, t.b.launch());
  REQUIRE(t.b.times() == 2);
  CHECK_FALSE(t.b.turns[0].refusal);
  t.complete(t.pair, 2, t.c);
  CHECK(t.c.times() == 2);
}

TEST_CASE("L10: a ring through three communicators and through an operation that comes after another") {
  Overlap t;
  const CollectiveRequest closes = of_count(5);
  t.submit(t.three, 2, of_count(5), t.c.launch());
  t.submit(t.three, 0, of_count(5), t.c.launch());
  t.submit(t.pair, 0, of_count(11), t.a.launch(), {{t.three, 1}});
  t.submit(t.pair, 0, of_count(12), t.a.launch());
  t.submit(t.other, 1, of_count(13), t.b.launch(), {{t.pair, 2}});
  CHECK(t.a.times() + t.b.times() + t.c.times() == 0);
  t.submit(t.three, 1, closes, t.c.launch(), {{t.other, 1}});
  REQUIRE(t.c.times() == 3);
  CHECK(t.c.refusal() == Kind::WouldDeadlock);
  std::size_t place = 0;
  for (const char* part : {"operation 1 of communicator 3 {", "of 5 f32", "waits for operation 1 of communicator 2 {",
                           "of 13 f32", "waits for operation 2 of communicator 1 {", "of 12 f32",
                           "which comes after operation 1 of communicator 1 {", "of 11 f32", "the first operation"}) {
    INFO(part << " in " << t.c.text());
    place = t.c.text().find(part, place);
    REQUIRE(place != std::string::npos);
  }
  t.submit(t.pair, 1, of_count(11), t.a.launch());
  CHECK(t.a.times() == 2);
  t.submit(t.pair, 1, of_count(12), t.a.launch());
  CHECK(t.a.times() == 4);
  t.submit(t.other, 0, of_count(13), t.b.launch());
  CHECK(t.b.times() == 2);
}

TEST_CASE("L10: an operation that waits for itself or a later one of its communicator is refused, with ranks to come") {
  Overlap t;
  const std::uint64_t itself_or_later = GENERATE(1U, 2U);
  t.submit(t.three, 2, of_count(1), t.a.launch());
  t.submit(t.three, 0, of_count(1), t.b.launch(), {{t.three, itself_or_later}});
  REQUIRE(t.a.times() == 1);
  CHECK(t.a.refusal() == Kind::WouldDeadlock);
  CHECK(t.b.refusal() == Kind::WouldDeadlock);
  t.submit(t.three, 1, of_count(1), t.c.launch());
  CHECK(t.c.refusal() == Kind::WouldDeadlock);
  t.complete(t.three, 3, t.d);
  CHECK(t.d.times() == 3);
}

TEST_CASE("No ring is seen where operations wait in one direction, or a refused one stands between") {
  Overlap t;
  t.submit(t.pair, 0, of_count(1), t.a.launch());
  t.submit(t.other, 0, of_count(1), t.b.launch(), {{t.pair, 1}});
  SECTION("the ranks wait alike") {
    t.submit(t.other, 1, of_count(1), t.b.launch(), {{t.pair, 1}});
    t.submit(t.pair, 1, of_count(1), t.a.launch());
  }
  SECTION("the one between is refused, and not answered as an earlier one waits") {
    t.submit(t.other, 0, of_count(2), t.c.launch(), {{t.pair, 2}});
    t.submit(t.other, 1, of_count(1), t.b.launch());
    t.submit(t.other, 1, of_count(3), t.c.launch());
    t.submit(t.pair, 0, of_count(2), t.d.launch());
    t.submit(t.pair, 1, of_count(1), t.a.launch());
    t.submit(t.pair, 1, of_count(2), t.d.launch(), {{t.other, 2}});
    CHECK(t.c.refusal() == Kind::Mismatch);
    REQUIRE(t.d.times() == 2);
    CHECK_FALSE(t.d.turns[1].refusal);
  }
  CHECK(t.a.times() == 2);
  REQUIRE(t.b.times() == 2);
  CHECK_FALSE(t.b.turns[1].refusal);
}

TEST_CASE("L10: a held operation times out with what it waits for, through whom, and who is missing there") {
  Overlap t;
  const CommunicatorNumber second = t.sequencer.open(among({0, 1}), 2h);
  const CollectiveRequest held = of_count(1);
  const CollectiveRequest between = of_count(2);
  const CollectiveRequest waits = of_count(3);
  t.submit(t.three, 0, waits, t.c.launch());
  t.submit(second, 0, between, t.b.launch());
  t.submit(second, 1, between, t.b.launch(), {{t.three, 2}});
  t.submit(t.pair, 0, held, t.a.launch(), {{second, 1}});
  t.submit(t.pair, 1, held, t.a.launch());
  t.submit(t.pair, 1, held, t.d.launch());
  CHECK(t.sequencer.expire(t.start + 1h) == t.start + 2h);
  REQUIRE(t.a.times() == 2);
  CHECK(t.d.times() == 1);
  CHECK(t.b.times() == 0);
  CHECK(t.c.times() == 0);
  CHECK(t.a.refusal() == Kind::Timeout);
  CHECK(mentions(
      t.a.text(),
      {"operation 1 of communicator 1 {", line_of(held), "was submitted by all ranks but held back for 3600000 ms",
       "host:0 waits for operation 1 of communicator 4 {", line_of(between),
       "host:1 waits for operation 2 of communicator 3 {", "which no rank has submitted",
       "comes after operation 1 of communicator 3 {", line_of(waits), "host:1 is missing, it has submitted",
       "busy with 1", "host:2 is missing", "busy with 2"}));
  CHECK_FALSE(mentions(t.a.text(), {"host:0 is missing"}));
  CHECK(t.sequencer.broken(t.pair));
  CHECK_FALSE(t.sequencer.broken(second));
}

TEST_CASE("L10: what others wait for times out first, which may let go what was held") {
  Overlap t;
  const CommunicatorNumber last = t.sequencer.open(among({0, 1}), 1h);
  t.submit(last, 0, of_count(1), t.c.launch());
  t.submit(t.other, 0, of_count(1), t.b.launch(), {{last, 1}});
  t.submit(t.other, 1, of_count(1), t.b.launch());
  t.submit(t.pair, 0, of_count(1), t.a.launch(), {{t.other, 1}});
  t.submit(t.pair, 1, of_count(1), t.a.launch());
  CHECK_FALSE(t.sequencer.expire(t.start + 1h));
  CHECK(t.c.refusal() == Kind::Timeout);
  REQUIRE(t.a.times() == 2);
  CHECK_FALSE(t.a.turns[0].refusal);
  REQUIRE(t.b.times() == 2);
  CHECK_FALSE(t.b.turns[0].refusal);
}
