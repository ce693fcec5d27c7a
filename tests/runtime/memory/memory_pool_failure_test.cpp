// A pool whose own records cannot be had, at every allocation: nothing is lost, and it goes on.

#include <coxswain/tests/runtime/memory/pool_model.hpp>
#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tests/support/failing_allocation.hpp>

#include <array>
#include <cstddef>
#include <new>
#include <random>
#include <vector>

using namespace cox;
using namespace cox::test;

namespace {

/// Storage without books of its own, so that only the pool allocates.
struct PlainStorage {
  [[nodiscard]] static std::size_t granularity() noexcept { return 4096; }
  [[nodiscard]] static MemoryAddress reserve(std::size_t) { return MemoryAddress{1} << 45U; }
  static void release(MemoryAddress, std::size_t) noexcept {}
  [[nodiscard]] bool map(MemoryAddress, std::size_t bytes) noexcept {
    mapped += bytes;
    return true;
  }
  [[nodiscard]] static bool alias(MemoryAddress, MemoryAddress, std::size_t) noexcept { return true; }
  void unmap(MemoryAddress, std::size_t bytes) noexcept { unmapped += bytes; }
  static void trim() noexcept {}
  std::size_t mapped = 0;
  std::size_t unmapped = 0;
};

struct StandingClock {
  [[nodiscard]] std::uint64_t completed(StreamSlot) const noexcept { return done; }
  std::uint64_t done = 0;
};

using Pool = MemoryPool<PlainStorage, StandingClock>;

/// Calls `act()` until it passes, its k-th allocation failing for k = 0, 1, ...; returns how often it failed.
template <class Act>
int despite_failures(const Pool& pool, Act act) {
  for (int k = 0;; ++k) {
    allocations_until_failure = k;
    try {
      act();
      allocations_until_failure = -1;
      return k;
    } catch (const std::bad_alloc&) {
      allocations_until_failure = -1;
      REQUIRE(pool.consistent());
    }
  }
}

}  // namespace

TEST_CASE("L2 L13: a pool without memory for its records loses nothing and goes on", "[memory]") {
  const long blocks = live_blocks();
  int failures = 0;
  {
    PlainStorage storage;
    StandingClock clock;
    Pool pool(storage, clock, {.capacity = std::size_t{512} << 20U});
    std::vector<MemoryAllocation> alive(3000);
    for (std::size_t i = 0; i < alive.size(); ++i) {
      const StreamSlot stream{static_cast<std::uint32_t>(i % 3)};
      failures += despite_failures(pool, [&] {  // without growth first: that fails alike
        const auto found = pool.allocate(1000 + 7 * i, stream, {}, Growth::Forbidden);
        alive[i] = found ? *found : pool.allocate(1000 + 7 * i, stream).value();
      });
      REQUIRE(pool.usage().number_allocs == i + 1);
    }
    const std::array both{StreamPosition{StreamSlot{5}, 1}, StreamPosition{StreamSlot{6}, 1}};
    const std::array one{StreamPosition{StreamSlot{7}, 2}};
    for (std::size_t i = 0; i < alive.size(); ++i) {
      failures += despite_failures(pool, [&] {
        if (i % 2 == 0) {
          pool.free(alive[i], both);
        } else {
          pool.free(alive[i], one);
        }
      });
    }
    CHECK(pool.usage().number_allocs == 0);
    clock.done = 2;
    pool.cleanup();
    CHECK(pool.consistent());
    CHECK(pool.usage().bytes_reserved == 0);
  }
  CHECK(failures > 5);
  CHECK(live_blocks() == blocks);
}

TEST_CASE("A pool never runs out of records half-way, however many it has left", "[memory]") {
  const std::size_t granule = PlainStorage::granularity();
  for (unsigned seed = 0; seed < 8000; ++seed) {
    std::mt19937 random(seed);
    PlainStorage storage;
    StandingClock clock;
    Pool pool(storage, clock, {.capacity = 4096 * granule});
    std::vector<MemoryAllocation> parts(20 + random() % 60);
    for (MemoryAllocation& part : parts) {  // most with a whole granule inside and something on either side of it
      part = pool.allocate(2 * granule + 512 * (random() % 4), StreamSlot{0}).value();
    }
    const std::size_t others = random() % 1100;  // more than the records that are made at a time
    for (std::size_t i = 0; i < others; ++i) static_cast<void>(pool.allocate(512, StreamSlot{1}).value());
    for (std::size_t i = 0; i < parts.size(); i += 2) {
      const StreamPosition use{StreamSlot{0}, 1 + i};
      pool.free(parts[i], {&use, 1});
    }
    static_cast<void>(pool.allocate((3 + random() % 20) * granule + 512, StreamSlot{0}).value());
    INFO("seed " << seed);
    REQUIRE(pool.consistent());
    REQUIRE(pool.usage().number_allocs == parts.size() / 2 + others + 1);
  }
}
