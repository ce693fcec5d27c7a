// No memory: a submit throws and nothing has happened, or all are answered once.

#include <coxswain/tests/collectives/sequencer_bench.hpp>
#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tests/support/failing_allocation.hpp>

#include <coxswain/collectives/sequencer.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

using namespace cox;
using namespace cox::test;
using namespace std::chrono_literals;

namespace {

/// Two communicators of the same devices.
struct Overlap : Bench {
  CommunicatorNumber other = sequencer.open(among({0, 1}), 1h);
};

struct Case {
  const char* name;
  std::function<void(Overlap&)> before;
  std::size_t rank;
  std::function<CollectiveArrival(Overlap&)> arrival;  ///< What is submitted while there is no memory.
  std::optional<CollectiveError::Kind> refusal = std::nullopt;
};

CollectiveArrival of(Told& told, CollectiveRequests requests, Dependencies after = {}) {
  return {.requests = std::move(requests), .after = std::move(after), .launch = told.launch()};
}
CollectiveArrival one(Overlap& t) { return of(t.a, {of_count(1)}); }
void first(Overlap& t) { t.sequencer.submit(t.pair, 0, one(t)); }

CollectiveArrival failed(Overlap& t) {
  CollectiveArrival given = one(t);
  given.failure = std::make_exception_ptr(std::runtime_error("a text that needs an allocation of its own"));
  return given;
}

const Case cases[] = {
    {"the first of its operation", [](Overlap&) {}, 0, one},
    {"the last of its operation", first, 1, one},
    {"the last of a group", [](Overlap& t) { t.sequencer.submit(t.pair, 0, of(t.a, {of_count(1), of_count(2)})); }, 1,
     [](Overlap& t) { return of(t.a, {of_count(1), of_count(2)}); }},
    {"one that lets others go",
     [](Overlap& t) {
       first(t);
       t.submit(t.other, 0, of_count(1), t.a.launch(), {{t.pair, 1}, {t.pair, 1}, {t.pair, 1}});
       t.submit(t.other, 1, of_count(1), t.a.launch());
       t.submit(t.other, 1, of_count(1), t.b.launch());
     },
     1, one},
    {"a mismatch", first, 1, [](Overlap& t) { return of(t.a, {of_count(2)}); }, CollectiveError::Kind::Mismatch},
    {"a failure", first, 1, failed, CollectiveError::Kind::RankFailed},
    {"a ring",
     [](Overlap& t) {
       first(t);
       t.submit(t.other, 0, of_count(1), t.b.launch(), {{t.pair, 1}});
     },
     1, [](Overlap& t) { return of(t.a, {of_count(1)}, {{t.other, 1}}); }, CollectiveError::Kind::WouldDeadlock},
    {"one after an abort", [](Overlap& t) { t.sequencer.abort(t.pair, nullptr); }, 1, one,
     CollectiveError::Kind::Aborted},
};

std::string recorded(const Overlap& t) {
  return t.sequencer.recorder(t.pair)->to_json() + t.sequencer.recorder(t.other)->to_json();
}

/// Whether it was accepted at once with the k-th allocation failing; else it is submitted again.
bool accepted_at(int k, const Case& tried, Told& told) {
  Overlap t;
  tried.before(t);
  const std::string before = recorded(t);
  const std::size_t told_before = t.a.times();
  CollectiveArrival given = tried.arrival(t);
  bool accepted = true;
  allocations_until_failure = k;
  try {
    t.sequencer.submit(t.pair, tried.rank, std::move(given));
  } catch (const std::bad_alloc&) {
    accepted = false;
  }
  allocations_until_failure = -1;
  if (!accepted) {
    CHECK(t.a.times() == told_before);
    CHECK(recorded(t) == before);
    CHECK(t.sequencer.submit(t.pair, tried.rank, tried.arrival(t)) == 1);
  }
  CHECK(t.b.times() == 0);
  told = t.a;
  return accepted;
}

}  // namespace

TEST_CASE("L2: a submit that finds no memory has not happened, and can be made again") {
  for (const Case& tried : cases) {
    INFO(tried.name);
    Told whole;
    CHECK(accepted_at(-1, tried, whole));
    int k = 0;
    for (bool accepted = false; !accepted; ++k) {
      INFO("allocation " << k);
      REQUIRE(k < 1000);
      Told told;
      accepted = accepted_at(k, tried, told);
      REQUIRE(told.times() == whole.times());
      for (std::size_t i = 0; i < told.times(); ++i) {
        CHECK(told.turns[i].sequence == whole.turns[i].sequence);
        CHECK(told.turns[i].order == whole.turns[i].order);
      }
      if (!told.turns.empty()) CHECK(told.refusal() == tried.refusal);
    }
    CHECK(k > 1);
  }
}

TEST_CASE("L2: with no memory everybody is answered all the same when a communicator is given up") {
  const int how = GENERATE(0, 1, 2, 3, 4);
  int left = -1;
  for (int k = 0; left < 0; ++k) {
    REQUIRE(k < 1000);
    Overlap t;
    t.submit(t.other, 0, of_count(1), t.a.launch());
    t.submit(t.pair, 0, of_count(1), t.b.launch(), {{t.other, 1}});
    t.submit(t.pair, 1, of_count(1), t.b.launch());
    t.submit(t.pair, 1, of_count(1), t.c.launch());
    allocations_until_failure = k;
    if (how == 0) t.sequencer.abort(t.pair, nullptr);
    if (how == 1) t.sequencer.close(t.pair);
    if (how == 2) t.sequencer.expire(t.start + 1h);
    if (how == 3) t.sequencer.abort(t.other, nullptr);
    if (how == 4) t.sequencer.close(t.other);
    left = std::exchange(allocations_until_failure, -1);
    CHECK(t.b.times() == 2);
    CHECK(t.c.times() == (how <= 2 ? 1 : 0));
    CHECK(t.a.times() == (how < 2 ? 0 : 1));
  }
}
