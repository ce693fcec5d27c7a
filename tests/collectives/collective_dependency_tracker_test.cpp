#include <coxswain/tests/support/catch.hpp>

#include <coxswain/collectives/sequencer/collective_dependency_tracker.hpp>

#include <rapidcheck.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

using cox::StreamPosition;
using cox::StreamSlot;
using cox::detail::CollectiveDependencyTracker;

namespace {

/// How far each communicator's slot has come.
struct Clock {
  [[nodiscard]] std::uint64_t completed(StreamSlot slot) const { return counts.at(static_cast<std::size_t>(slot)); }
  std::vector<std::uint64_t> counts = std::vector<std::uint64_t>(3);
};

StreamPosition collective(std::uint32_t communicator, std::uint64_t number) {
  return {StreamSlot{communicator}, number};
}

std::vector<StreamPosition> awaited_by(const CollectiveDependencyTracker& awaited, std::uint64_t piece,
                                       const Clock& clock) {
  std::vector<StreamPosition> found;
  awaited.for_each_until(piece, clock, [&](const StreamPosition& each) { found.push_back(each); });
  return found;
}

}  // namespace

TEST_CASE("A piece waits for what it and the pieces before it have come to wait for, not for what later ones do") {
  const Clock clock;
  CollectiveDependencyTracker awaited;
  awaited.add(2, collective(0, 1), clock);
  awaited.add(5, collective(1, 4), clock);
  CHECK(awaited_by(awaited, 1, clock).empty());
  CHECK(awaited_by(awaited, 2, clock) == std::vector{collective(0, 1)});
  CHECK(awaited_by(awaited, 4, clock) == std::vector{collective(0, 1)});
  CHECK(awaited_by(awaited, 5, clock) == std::vector{collective(0, 1), collective(1, 4)});
}

TEST_CASE("What is done is not waited for, and is forgotten") {
  Clock clock;
  CollectiveDependencyTracker awaited;
  awaited.add(1, collective(0, 3), clock);
  awaited.add(1, collective(1, 1), clock);
  clock.counts[0] = 3;
  CHECK(awaited_by(awaited, 9, clock) == std::vector{collective(1, 1)});
  awaited.add(2, collective(0, 2), clock);  // was done before it was waited for
  CHECK(awaited_by(awaited, 9, clock) == std::vector{collective(1, 1)});
}

TEST_CASE("A collective stands for those before it on its communicator, but only from its own piece on") {
  const Clock clock;
  CollectiveDependencyTracker awaited;
  awaited.add(3, collective(2, 7), clock);
  awaited.add(4, collective(2, 5), clock);
  CHECK(awaited_by(awaited, 4, clock) == std::vector{collective(2, 7)});
  awaited.add(6, collective(2, 9), clock);
  CHECK(awaited_by(awaited, 5, clock) == std::vector{collective(2, 7)});
  CHECK(awaited_by(awaited, 6, clock).back() == collective(2, 9));
}

TEST_CASE("What is found is what a list of all waits would say, whatever was added and has completed") {
  REQUIRE(rc::check([] {
    struct Added {
      std::uint64_t from;
      StreamPosition collective;
    };
    Clock clock;
    CollectiveDependencyTracker awaited;
    std::vector<Added> all;
    std::uint64_t from = 0;
    for (int step = 0; step < 60; ++step) {
      const auto stream = *rc::gen::inRange(0U, 3U);
      auto& completed = clock.counts[stream];
      if (*rc::gen::inRange(0, 3) == 0) completed += *rc::gen::inRange<std::uint64_t>(0, 4);
      from += *rc::gen::inRange<std::uint64_t>(0, 2);
      const StreamPosition added = collective(stream, completed + *rc::gen::inRange<std::uint64_t>(0, 9));
      awaited.add(from, added, clock);
      all.push_back({from, added});
      const auto last = *rc::gen::inRange<std::uint64_t>(0, from + 2);
      std::vector<std::uint64_t> expected(clock.counts.size());
      for (const Added& each : all)
        if (each.from <= last) {
          auto& most = expected[static_cast<std::size_t>(each.collective.stream)];
          most = std::max(most, each.collective.position);
        }
      std::vector<std::uint64_t> found(clock.counts.size());
      for (const StreamPosition& each : awaited_by(awaited, last, clock)) {
        auto& position = found[static_cast<std::size_t>(each.stream)];
        RC_ASSERT(position == 0U);
        position = each.position;
      }
      for (std::size_t i = 0; i < found.size(); ++i)
        RC_ASSERT(found[i] == (expected[i] > clock.counts[i] ? expected[i] : 0U));
    }
  }));
}
