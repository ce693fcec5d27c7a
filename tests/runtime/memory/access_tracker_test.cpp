#include <coxswain/tests/runtime/memory/pool_model.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/runtime/memory/access_tracker.hpp>

using namespace cox;
using cox::test::PaperClock;

namespace {

constexpr StreamSlot a{0};
constexpr StreamSlot b{1};
constexpr StreamSlot c{2};

struct Uses {
  StreamPositions use(Access access, StreamSlot on, std::uint64_t position) {
    StreamPositions waits;
    uses.add_waits(access, on, clock, waits);
    uses.prepare(clock);
    uses.record(access, {on, position});
    return waits;
  }

  PaperClock clock;
  AccessTracker uses;
};

}  // namespace

TEST_CASE("A use waits for exactly the uses on other streams that it conflicts with", "[memory]") {
  Uses memory;
  CHECK(memory.use(Access::Write, a, 1).empty());
  CHECK(memory.use(Access::Write, a, 2).empty());  // the same stream is in order anyway
  CHECK(memory.use(Access::Read, b, 1) == StreamPositions{{a, 2}});
  CHECK(memory.use(Access::Read, c, 1) == StreamPositions{{a, 2}});  // readers do not wait for each other
  CHECK(memory.use(Access::Read, b, 2) == StreamPositions{{a, 2}});
  CHECK(memory.use(Access::Write, a, 3) == StreamPositions{{b, 2}, {c, 1}});
  CHECK(memory.use(Access::Write, b, 3) == StreamPositions{{a, 3}});
  memory.clock.done[1] = 3;
  CHECK(memory.use(Access::Read, c, 2).empty());  // what is done needs no waiting
}

TEST_CASE("L11: memory is free when its last readers are done, or its last writer if nobody read since", "[memory]") {
  Uses memory;
  CHECK(memory.uses.pending(memory.clock).empty());
  memory.use(Access::Write, a, 4);
  CHECK(memory.uses.pending(memory.clock) == StreamPositions{{a, 4}});
  memory.use(Access::Read, b, 1);
  memory.use(Access::Read, c, 9);
  CHECK(memory.uses.pending(memory.clock) == StreamPositions{{b, 1}, {c, 9}});
  memory.clock.done[1] = 1;  // the reader has waited for the writer
  CHECK(memory.uses.pending(memory.clock) == StreamPositions{{c, 9}});
  memory.clock.done[2] = 9;
  CHECK(memory.uses.pending(memory.clock).empty());
}

TEST_CASE("Memory with a former life waits for its end", "[memory]") {
  Uses memory;
  memory.uses = AccessTracker({a, 5});
  CHECK(memory.use(Access::Write, b, 1) == StreamPositions{{a, 5}});
  CHECK(memory.use(Access::Write, a, 6) == StreamPositions{{b, 1}});
}

TEST_CASE("However often a stream reads, it is remembered once", "[memory]") {
  Uses memory;
  for (std::uint64_t position = 1; position <= 1000; ++position) memory.use(Access::Read, a, position);
  CHECK(memory.uses.pending(memory.clock) == StreamPositions{{a, 1000}});
}
