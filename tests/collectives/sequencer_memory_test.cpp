// No memory: a submit throws and nothing has happened, or all are answered once.

#include <coxswain/tests/collectives/sequencer_bench.hpp>
#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tests/support/failing_allocation.hpp>

#include <coxswain/collectives/sequencer/sequencer.hpp>
#include <coxswain/runtime/handle/recycled_memory.hpp>

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

/// Two communicators of the same devices, and one of more than a line-up has room for without an allocation.
struct WideOverlap : Bench {
  CommunicatorNumber other = sequencer.open(among({0, 1}), 1h);
  CommunicatorNumber wide = sequencer.open(among({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17}), 1h);
  Told earlier;
};

struct Case {
  const char* name;
  std::function<void(WideOverlap&)> before;
  std::size_t rank;
  std::function<CollectiveSubmission(WideOverlap&)> arrival;  ///< What is submitted while there is no memory.
  std::optional<CollectiveError::Kind> refusal = std::nullopt;
  CommunicatorNumber WideOverlap::* communicator = &WideOverlap::pair;
};

CollectiveSubmission of(Told& told, CollectiveRequests requests, Dependencies after = {}) {
  return {.requests = std::move(requests), .dependencies = std::move(after), .launch = told.launch()};
}
CollectiveSubmission one(WideOverlap& t) { return of(t.a, {of_count(1)}); }
void first(WideOverlap& t) { t.sequencer.submit(t.pair, 0, one(t)); }

CollectiveSubmission failed(WideOverlap& t) {
  CollectiveSubmission given = one(t);
  given.failure = std::make_exception_ptr(std::runtime_error("a text that needs an allocation of its own"));
  return given;
}

const Case cases[] = {
    {"the first of its operation", [](WideOverlap&) {}, 0, one},
    {"the last of its operation", first, 1, one},
    {"the first of a group", [](WideOverlap&) {}, 0,
     [](WideOverlap& t) { return of(t.a, {of_count(1), of_count(2)}); }},
    {"one that is held", first, 1, [](WideOverlap& t) { return of(t.a, {of_count(1)}, {{t.other, 9}}); }},
    {"the last of many ranks",
     [](WideOverlap& t) {
       for (std::size_t rank = 0; rank < 17; ++rank) t.submit(t.wide, rank, of_count(1), t.a.launch());
     },
     17, one, std::nullopt, &WideOverlap::wide},
    {"the last of a group", [](WideOverlap& t) { t.sequencer.submit(t.pair, 0, of(t.a, {of_count(1), of_count(2)})); },
     1, [](WideOverlap& t) { return of(t.a, {of_count(1), of_count(2)}); }},
    {"one that lets others go",
     [](WideOverlap& t) {
       first(t);
       t.submit(t.other, 0, of_count(1), t.a.launch(), {{t.pair, 1}, {t.pair, 1}, {t.pair, 1}});
       t.submit(t.other, 1, of_count(1), t.a.launch());
       t.submit(t.other, 1, of_count(1), t.b.launch());
     },
     1, one},
    {"a mismatch", first, 1, [](WideOverlap& t) { return of(t.a, {of_count(2)}); }, CollectiveError::Kind::Mismatch},
    {"a failure", first, 1, failed, CollectiveError::Kind::RankFailed},
    {"a ring",
     [](WideOverlap& t) {
       first(t);
       t.submit(t.other, 0, of_count(1), t.b.launch(), {{t.pair, 1}});
     },
     1, [](WideOverlap& t) { return of(t.a, {of_count(1)}, {{t.other, 1}}); }, CollectiveError::Kind::WouldDeadlock},
    {"one after an abort", [](WideOverlap& t) { t.sequencer.abort(t.pair, nullptr); }, 1, one,
     CollectiveError::Kind::Aborted},
};

/// What can be seen of the communicators.
std::string seen(WideOverlap& t) {
  std::string text;
  for (const CommunicatorNumber number : {t.pair, t.other, t.wide}) text += t.sequencer.recorder(number)->to_json();
  const auto deadline = t.sequencer.expire(t.start);
  return text + (deadline ? std::to_string(deadline->time_since_epoch().count()) : "no deadline");
}

/// After some operations, makes the submission with the k-th allocation failing, and again if it was not accepted.
/// Returns whether it was accepted at once.
bool accepted_at(int k, std::uint64_t earlier, const Case& tried, Told& told) {
  WideOverlap t;
  for (std::uint64_t i = 0; i < earlier; ++i)
    for (const std::size_t rank : {0U, 1U}) t.submit(t.pair, rank, of_count(1), t.earlier.launch());
  tried.before(t);
  const CommunicatorNumber communicator = t.*tried.communicator;
  const std::string before = seen(t);
  const std::size_t told_before = t.a.times();
  CollectiveSubmission given = tried.arrival(t);
  bool accepted = true;
  detail::RecycledMemory::free_cached();  // it would not ask for memory
  allocations_until_failure = k;
  try {
    t.sequencer.submit(communicator, tried.rank, std::move(given));
  } catch (const std::bad_alloc&) {
    accepted = false;
  }
  allocations_until_failure = -1;
  if (!accepted) {
    CHECK(t.a.times() == told_before);
    CHECK(seen(t) == before);
    const std::uint64_t operation = communicator == t.pair ? earlier + 1 : 1;
    CHECK(t.sequencer.submit(communicator, tried.rank, tried.arrival(t)) == operation);
  }
  CHECK(t.b.times() == 0);
  told = t.a;
  return accepted;
}

void try_at_every_allocation(const Case& tried, std::uint64_t earlier) {
  Told whole;
  CHECK(accepted_at(-1, earlier, tried, whole));
  int k = 0;
  for (bool accepted = false; !accepted; ++k) {
    INFO("allocation " << k);
    REQUIRE(k < 1000);
    Told told;
    accepted = accepted_at(k, earlier, tried, told);
    REQUIRE(told.times() == whole.times());
    for (std::size_t i = 0; i < told.times(); ++i) {
      CHECK(told.turns[i].sequence == whole.turns[i].sequence);
      CHECK(told.turns[i].order == whole.turns[i].order);
    }
    if (!told.turns.empty()) CHECK(told.refusal() == tried.refusal);
  }
  CHECK(k > 1);
}

}  // namespace

TEST_CASE("L2: a submit that finds no memory has not happened, and can be made again") {
  for (const Case& tried : cases) {
    INFO(tried.name);
    try_at_every_allocation(tried, 0);
  }
}

TEST_CASE("L2: so it is whatever was submitted before, and how much room that has left") {
  for (std::uint64_t earlier = 1; earlier < 9; ++earlier) {
    INFO(earlier << " operations before");
    try_at_every_allocation(cases[0], earlier);
  }
}

TEST_CASE("L2: with no memory everybody is answered all the same when a communicator is given up") {
  const int how = GENERATE(0, 1, 2, 3, 4);
  int left = -1;
  for (int k = 0; left < 0; ++k) {
    REQUIRE(k < 1000);
    WideOverlap t;
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
