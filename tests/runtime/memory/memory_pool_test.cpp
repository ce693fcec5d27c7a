#include <coxswain/runtime/memory/memory_pool.hpp>
#include <coxswain/tests/runtime/memory/paper_storage.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <array>
#include <cstdint>
#include <limits>
#include <vector>

using namespace cox;
using namespace cox::test;

namespace {

struct PoolFixture {
  explicit PoolFixture(std::size_t memory = std::size_t{1} << 30U, MemoryPoolOptions options = {})
      : storage(memory), pool(storage, clock, with_capacity(options, memory)) {}

  static MemoryPoolOptions with_capacity(MemoryPoolOptions options, std::size_t memory) {
    options.capacity = memory;
    return options;
  }
  MemoryAllocation take(std::size_t bytes, StreamSlot stream = one, MemoryLabel label = {}) {
    const auto allocation = pool.allocate(bytes, stream, label);
    REQUIRE(allocation.has_value());
    return *allocation;
  }
  void free_at(const MemoryAllocation& allocation, StreamSlot stream, std::uint64_t position) {
    const StreamPosition use{stream, position};
    pool.free(allocation, {&use, 1});
  }

  PaperMapping storage;
  PaperClock clock;
  MemoryPool<PaperMapping, PaperClock> pool;
};

}  // namespace

TEST_CASE("Memory freed on a stream is reused on it at once, and on others when its work is done", "[memory]") {
  PoolFixture f(64 * granule);
  const MemoryAllocation first = f.take(40 * granule);
  f.free_at(first, one, 7);
  const MemoryAllocation again = f.take(40 * granule);
  CHECK(again.address == first.address);
  CHECK(again.last_use == StreamPosition{one, 7});
  f.free_at(again, one, 8);

  // Another stream may have it before that only if it waits.
  const MemoryAllocation waiting = f.take(40 * granule, two);
  CHECK(waiting.last_use == StreamPosition{one, 8});
  f.free_at(waiting, two, 1);

  f.clock.done[1] = 1;
  const MemoryAllocation settled = f.take(40 * granule, one);
  CHECK(settled.last_use == StreamPosition{});
}

TEST_CASE("Another stream gets memory of its own before it is made to wait", "[memory]") {
  PoolFixture f;
  const MemoryAllocation first = f.take(40 * granule);
  f.free_at(first, one, 7);
  const MemoryAllocation other = f.take(40 * granule, two);
  CHECK(other.last_use.position == 0);
  CHECK(other.address != first.address);
}

TEST_CASE("Memory that several streams use waits for all of them", "[memory]") {
  PoolFixture f(8 * granule);
  const MemoryAllocation shared = f.take(8 * granule);
  const std::array uses{StreamPosition{one, 1}, StreamPosition{two, 1}};
  f.pool.free(shared, uses);
  CHECK_FALSE(f.pool.allocate(granule, one).has_value());
  CHECK(f.pool.report().waiting == 8 * granule);
  f.clock.done[0] = 1;
  CHECK_FALSE(f.pool.allocate(granule, one).has_value());
  f.clock.done[1] = 1;
  CHECK(f.take(8 * granule, one).last_use == StreamPosition{});
}

TEST_CASE("Joined memory waits for the later of its parts' uses", "[memory]") {
  PoolFixture f(64 * granule);
  const MemoryAllocation first = f.take(30 * granule);
  const MemoryAllocation second = f.take(34 * granule);
  f.free_at(first, one, 1);
  f.free_at(second, one, 5);
  f.clock.done[0] = 1;
  CHECK(f.take(64 * granule, two).last_use == StreamPosition{one, 5});
}

TEST_CASE("Split memory is one piece again when all parts are free", "[memory]") {
  PoolFixture f(64 * granule);
  std::vector<MemoryAllocation> parts;
  for (int i = 0; i < 512; ++i) parts.push_back(f.take(512));
  for (std::size_t i = 0; i < parts.size(); i += 2) f.free_at(parts[i], one, 1);
  for (std::size_t i = 1; i < parts.size(); i += 2) f.free_at(parts[i], one, 1);
  CHECK(f.take(64 * granule).size == 64 * granule);
  CHECK(f.pool.consistent());
}

TEST_CASE("Scattered free memory is put behind new addresses rather than left lying", "[memory]") {
  PoolFixture f(64 * granule);
  std::vector<MemoryAllocation> parts;
  for (int i = 0; i < 64; ++i) parts.push_back(f.take(granule));
  for (std::size_t i = 0; i < parts.size(); i += 2) f.free_at(parts[i], one, 1);
  f.clock.done[0] = 1;
  const MemoryAllocation whole = f.take(32 * granule);  // there are 32 granules, no two of them neighbours
  CHECK(f.storage.backs(whole.address, whole.size));
  CHECK(f.pool.usage().bytes_reserved == 64 * granule);
  CHECK(f.pool.consistent());
}

TEST_CASE("L11: scattered memory that a stream has yet to use is used by it at new addresses beside the old",
          "[memory]") {
  PoolFixture f(64 * granule);
  std::vector<MemoryAllocation> parts;
  for (int i = 0; i < 64; ++i) parts.push_back(f.take(granule));
  for (std::size_t i = 0; i < parts.size(); i += 2) f.free_at(parts[i], one, 1 + i);
  const MemoryAllocation whole = f.take(32 * granule);  // nothing of what is free has been passed
  CHECK(f.storage.mapped == 64 * granule);
  CHECK(f.storage.backs(parts[0].address, granule));  // for the work that is queued
  CHECK(whole.last_use == StreamPosition{one, 63});
  CHECK(f.pool.consistent());

  f.clock.done[0] = 63;
  f.free_at(whole, one, 64);
  CHECK(f.take(32 * granule).address == whole.address);
  f.pool.cleanup();
  CHECK_FALSE(f.storage.backs(parts[0].address, granule));
  CHECK(f.pool.usage().bytes_reserved == 64 * granule);
}

TEST_CASE("One allocation of nine tenths of the memory succeeds, however the rest was used before", "[memory]") {
  PoolFixture f(1000 * granule);
  std::vector<MemoryAllocation> parts;
  for (int i = 0; i < 1000; ++i) parts.push_back(f.take(granule - 512));
  for (const MemoryAllocation& part : parts) f.free_at(part, one, 1);
  f.clock.done[0] = 1;
  CHECK(f.take(900 * granule, two).size == 900 * granule);
}

TEST_CASE("L7: no more is taken than the capacity, and the report says where it is", "[memory]") {
  PoolFixture f(64 * granule);
  const MemoryAllocation weights = f.take(40 * granule, one, {"weights"});
  const MemoryAllocation gradients = f.take(20 * granule, one, {"gradients"});
  CHECK_FALSE(f.pool.allocate(8 * granule, one).has_value());
  CHECK_FALSE(f.pool.allocate(std::size_t{1} << 40U, one).has_value());
  const MemoryReport report = f.pool.report();
  CHECK(report.by_label.at("weights") == 40 * granule);
  CHECK(report.capacity == 64 * granule);
  CHECK_THAT(to_string(report), Catch::Matchers::ContainsSubstring("weights") &&
                                    Catch::Matchers::ContainsSubstring("163840 B") &&
                                    !Catch::Matchers::ContainsSubstring("\n"));
  f.free_at(weights, one, 1);
  f.free_at(gradients, one, 2);
  CHECK(f.take(60 * granule).size == 60 * granule);
}

TEST_CASE("Cleanup gives back what no work touches any more, and nothing else", "[memory]") {
  PoolFixture f;
  const MemoryAllocation used = f.take(3 * granule);
  const MemoryAllocation done = f.take(5 * granule);
  const MemoryAllocation between = f.take(granule);  // free neighbours would be one block
  const MemoryAllocation pending = f.take(7 * granule);
  f.free_at(done, one, 1);
  f.free_at(pending, one, 2);
  f.clock.done[0] = 1;
  f.pool.cleanup();
  CHECK(f.storage.backs(used.address, used.size));
  CHECK(f.storage.backs(pending.address, pending.size));
  CHECK_FALSE(f.storage.backs(done.address, granule));
  f.clock.done[0] = 2;
  f.pool.free(used, {});
  f.pool.free(between, {});
  f.pool.cleanup();
  CHECK(f.pool.usage().bytes_reserved == 0);
}

TEST_CASE("An allocation is told from a later one of the same block", "[memory]") {
  PoolFixture f;
  const MemoryAllocation first = f.take(granule);
  CHECK(f.pool.is_live(first));
  f.free_at(first, one, 1);
  CHECK_FALSE(f.pool.is_live(first));
  const MemoryAllocation second = f.take(granule);
  CHECK(second.block == first.block);
  CHECK_FALSE(f.pool.is_live(first));
  CHECK(f.pool.is_live(second));
}

TEST_CASE("A storage that refuses leaves the pool as it was", "[memory]") {
  PoolFixture f;
  const MemoryAllocation first = f.take(granule);
  f.storage.refuse = true;
  CHECK_FALSE(f.pool.allocate(64 * granule, one).has_value());
  CHECK(f.pool.consistent());
  f.storage.refuse = false;
  f.free_at(first, one, 1);
  CHECK(f.take(64 * granule).size == 64 * granule);
}

TEST_CASE("Destroying a pool gives everything back, live allocations too", "[memory]") {
  PaperMapping storage;
  PaperClock clock;
  {
    MemoryPool<PaperMapping, PaperClock> pool(storage, clock, {});
    static_cast<void>(pool.allocate(100, one));
    static_cast<void>(pool.allocate(100 * granule, two));
  }
  CHECK(storage.mapped == 0);
  CHECK(storage.reserved == 0);
  CHECK(storage.fault.empty());
}

TEST_CASE("An allocation that may not grow the pool is served from what is free, without the storage", "[memory]") {
  PoolFixture f;
  CHECK_FALSE(f.pool.allocate(granule, one, {}, Growth::Forbidden).has_value());
  CHECK(f.storage.calls == 0);

  const MemoryAllocation first = f.take(8 * granule);
  f.free_at(first, one, 7);
  const std::size_t calls = f.storage.calls;
  CHECK_FALSE(f.pool.allocate(8 * granule, two, {}, Growth::Forbidden).has_value());  // it would have to wait
  const auto own = f.pool.allocate(3 * granule, one, {}, Growth::Forbidden);
  REQUIRE(own.has_value());
  CHECK(own->last_use == StreamPosition{one, 7});
  CHECK_FALSE(f.pool.allocate(8 * granule, one, {}, Growth::Forbidden).has_value());

  f.clock.done[0] = 7;  // what has been passed in the meantime is found by looking
  const auto settled = f.pool.allocate(5 * granule, two, {}, Growth::Forbidden);
  REQUIRE(settled.has_value());
  CHECK(settled->last_use == StreamPosition{});
  CHECK(f.storage.calls == calls);
  CHECK(f.pool.consistent());
}

TEST_CASE("An allocation that may not grow the pool joins its stream's memory with shared memory", "[memory]") {
  PoolFixture f(64 * granule);
  const MemoryAllocation first = f.take(32 * granule);
  const MemoryAllocation second = f.take(32 * granule);
  f.free_at(first, one, 1);
  f.free_at(second, two, 1);
  f.clock.done[1] = 1;
  const auto whole = f.pool.allocate(64 * granule, one, {}, Growth::Forbidden);
  REQUIRE(whole.has_value());
  CHECK(whole->last_use == StreamPosition{one, 1});
}

TEST_CASE("An allocation that may not grow the pool leaves moved memory's old addresses alone", "[memory]") {
  PoolFixture f(64 * granule);
  std::vector<MemoryAllocation> parts;
  for (int i = 0; i < 64; ++i) parts.push_back(f.take(granule));
  for (std::size_t i = 0; i < parts.size(); i += 2) f.free_at(parts[i], one, 1 + i);
  f.pool.free(f.take(32 * granule), {});  // of moved granules
  f.clock.done[0] = 63;                   // their old addresses could be given up
  const std::size_t calls = f.storage.calls;
  CHECK_FALSE(f.pool.allocate(33 * granule, one, {}, Growth::Forbidden).has_value());
  CHECK(f.pool.allocate(32 * granule, two, {}, Growth::Forbidden).has_value());
  CHECK(f.storage.calls == calls);
  CHECK(f.storage.backs(parts[0].address, granule));
  f.pool.cleanup();
  CHECK_FALSE(f.storage.backs(parts[0].address, granule));
}

TEST_CASE("L7: a capacity below what is reserved lets nothing new be taken until it fits", "[memory]") {
  PoolFixture f(64 * granule);
  const MemoryAllocation kept = f.take(20 * granule);
  const MemoryAllocation gone = f.take(20 * granule);
  f.pool.set_capacity(30 * granule);
  CHECK(f.pool.capacity() == 30 * granule);
  CHECK(f.pool.report().capacity == 30 * granule);
  CHECK(f.pool.reserved() == 40 * granule);
  CHECK_FALSE(f.pool.allocate(granule, one).has_value());
  f.free_at(gone, one, 1);
  const MemoryAllocation again = f.take(20 * granule);  // what it has, it hands out
  CHECK(again.address == gone.address);
  CHECK(f.pool.reserved() == 40 * granule);
  f.free_at(again, one, 2);
  f.clock.done[0] = 2;
  CHECK_FALSE(f.pool.allocate(31 * granule, one).has_value());
  f.pool.cleanup();
  CHECK(f.pool.reserved() == 20 * granule);
  CHECK(f.take(10 * granule).size == 10 * granule);
  CHECK_FALSE(f.pool.allocate(granule, one).has_value());
  f.pool.set_capacity(64 * granule);
  CHECK(f.take(34 * granule).size == 34 * granule);
  CHECK(f.pool.is_live(kept));
}

TEST_CASE("L7: memory can still be moved when the capacity is below what is reserved", "[memory]") {
  PoolFixture f(64 * granule);
  std::vector<MemoryAllocation> parts;
  for (int i = 0; i < 64; ++i) parts.push_back(f.take(granule));
  for (std::size_t i = 0; i < parts.size(); i += 2) f.free_at(parts[i], one, 1 + i);
  f.pool.set_capacity(40 * granule);
  CHECK(f.take(32 * granule).last_use == StreamPosition{one, 63});
  CHECK(f.pool.reserved() == 64 * granule);
  CHECK(f.pool.consistent());
}

TEST_CASE("The number of live allocations is told", "[memory]") {
  PoolFixture f;
  CHECK(f.pool.live() == 0);
  const MemoryAllocation first = f.take(granule);
  const MemoryAllocation second = f.take(granule);
  CHECK(f.pool.live() == 2);
  f.free_at(first, one, 1);
  CHECK(f.pool.live() == 1);
  f.pool.free(second, {});
  CHECK(f.pool.live() == 0);
}

TEST_CASE("Nothing is handed out for a size that no device has", "[memory]") {
  PoolFixture f;
  f.pool.set_capacity(std::numeric_limits<std::size_t>::max());
  f.free_at(f.take(granule), one, 1);
  for (const std::size_t less : {0U, 1U, 511U, 512U, 4096U, 1U << 30U})
    CHECK_FALSE(f.pool.allocate(std::numeric_limits<std::size_t>::max() - less, one).has_value());
  CHECK(f.pool.consistent());
}

TEST_CASE("Shared memory is not tied to a stream that gains nothing by it", "[memory]") {
  PaperMappingWithoutAliases storage(64 * granule);
  PaperClock clock;
  MemoryPool<PaperMappingWithoutAliases, PaperClock> pool(storage, clock, {.capacity = 64 * granule});
  const StreamPosition pending{two, 1};
  const auto small = pool.allocate(512, two);
  const auto large = pool.allocate(32 * granule, one);
  const auto rest = pool.allocate(8 * granule, one);
  REQUIRE((small && large && rest));
  pool.free(*large, {});
  pool.free(*small, {&pending, 1});
  // Beside the little that is pending there is not enough, but the memory there can be had elsewhere.
  CHECK(pool.allocate(50 * granule, two).has_value());
  CHECK(pool.consistent());
}

TEST_CASE("What is free is found, however many blocks of nearly its size are looked at before", "[memory]") {
  PoolFixture f;
  std::vector<MemoryAllocation> parts;
  for (const std::size_t units : {65U, 65U, 64U, 64U, 64U, 64U, 64U, 64U, 64U, 64U, 64U, 64U}) {  // of one list
    parts.push_back(f.take(units * 512));
    static_cast<void>(f.take(512));
  }
  const MemoryAllocation rest = f.take(static_cast<std::size_t>(f.pool.report().free));
  for (const MemoryAllocation& part : parts) f.free_at(part, one, 1);
  CHECK(f.take(65 * 512).address == parts[1].address);  // kept
  const auto found = f.pool.allocate(65 * 512, one, {}, Growth::Forbidden);
  REQUIRE(found.has_value());
  CHECK(found->address == parts[0].address);
  CHECK(f.pool.is_live(rest));
}
