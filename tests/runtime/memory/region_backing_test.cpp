#include <coxswain/runtime/memory/region_backing.hpp>
#include <coxswain/tests/runtime/memory/paper_storage.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <cstddef>

using namespace cox;
using namespace cox::test;

namespace {

constexpr std::size_t mebibyte = std::size_t{1} << 20U;

struct RegionsFixture {
  explicit RegionsFixture(std::size_t memory = no_limit) : storage(memory) { blocks.add_stream(one); }

  PaperRegions storage;
  BlockMap blocks{512, 4096};
  ReservedBytes reserved;
  RegionBacking<PaperRegions> backing{storage, blocks, reserved, 0};
};

}  // namespace

TEST_CASE("Small memory comes from regions that are shared, large memory has its own", "[memory]") {
  RegionsFixture f;
  REQUIRE(f.backing.grow(512, one, no_limit));
  CHECK(f.storage.mapped == 32 * mebibyte);
  REQUIRE(f.backing.grow(100 * mebibyte + 1, one, no_limit));
  CHECK(f.storage.mapped == 132 * mebibyte + 4096);
  CHECK(f.reserved.now == f.storage.mapped);
  CHECK(f.blocks.consistent());
}

TEST_CASE("Only whole regions that are free of all go back", "[memory]") {
  RegionsFixture f;
  REQUIRE(f.backing.grow(100 * mebibyte, no_stream, no_limit));
  REQUIRE(f.backing.grow(200 * mebibyte, one, no_limit));
  REQUIRE(f.backing.grow(300 * mebibyte, no_stream, no_limit));
  f.blocks.reserve(1);
  const MemoryBlockId used = f.blocks.find(one, 200 * mebibyte);
  f.blocks.take(used, 512);
  f.blocks[used].state = MemoryBlock::State::Live;
  f.blocks.relist(f.blocks[used].next, no_stream);
  f.backing.reclaim(1);
  CHECK(f.storage.mapped == 300 * mebibyte);  // the largest that is whole
  f.backing.reclaim(no_limit);
  CHECK(f.storage.mapped == 200 * mebibyte);
  CHECK(f.reserved.now == 200 * mebibyte);
  CHECK(f.blocks.consistent());
}

TEST_CASE("L7: a region that the capacity or the storage does not have is refused", "[memory]") {
  RegionsFixture f(64 * mebibyte);
  f.reserved.capacity = 32 * mebibyte;
  REQUIRE(f.backing.grow(512, one, no_limit));
  CHECK_FALSE(f.backing.grow(512, one, no_limit));
  f.reserved.capacity = no_limit;
  CHECK_FALSE(f.backing.grow(33 * mebibyte, one, no_limit));
  CHECK(f.backing.grow(32 * mebibyte, one, no_limit));
}

TEST_CASE("L7: where the capacity has no room for a whole region, small memory has one of its own", "[memory]") {
  RegionsFixture f(64 * mebibyte);
  f.reserved.capacity = 33 * mebibyte;
  REQUIRE(f.backing.grow(512, one, no_limit));
  const std::size_t whole = f.reserved.now;
  REQUIRE(f.backing.grow(512, one, no_limit));
  CHECK(f.reserved.now - whole < mebibyte);
  CHECK_FALSE(f.backing.grow(mebibyte, one, no_limit));
}

TEST_CASE("L13: all regions go back with the backing, in however many blocks they are", "[memory]") {
  PaperRegions storage;
  {
    BlockMap blocks(512, 4096);
    ReservedBytes reserved;
    blocks.add_stream(one);
    RegionBacking<PaperRegions> backing(storage, blocks, reserved, 0);
    REQUIRE(backing.grow(512, one, no_limit));
    REQUIRE(backing.grow(100 * mebibyte, one, no_limit));
    const MemoryBlockId id = blocks.find(one, 512);
    blocks.take(id, 512);
    blocks[id].state = MemoryBlock::State::Live;
  }
  CHECK(storage.mapped == 0);
  CHECK(storage.fault.empty());
}
