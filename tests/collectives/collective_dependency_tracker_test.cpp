#include <coxswain/tests/support/catch.hpp>

#include <coxswain/collectives/sequencer/collective_dependency_tracker.hpp>

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
