#include <coxswain/runtime/memory/mapped_backing.hpp>
#include <coxswain/tests/runtime/memory/paper_storage.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <cstddef>
#include <vector>

using namespace cox;
using namespace cox::test;

namespace {

struct MappedBlocksFixture {
  MappedBlocksFixture() {
    blocks.add_stream(one);
    blocks.add_stream(two);
  }
  MemoryBlockId take(std::size_t size, StreamSlot stream = one) {
    const MemoryBlockId id = blocks.find(stream, size);
    REQUIRE(id != 0);
    blocks.reserve(1);
    blocks.take(id, size);
    blocks[id].state = MemoryBlock::State::Live;
    return id;
  }
  /// `count` free granules of `owner`, no two of them neighbours.
  std::vector<MemoryBlockId> scatter(std::size_t count, StreamSlot owner) {
    REQUIRE(backing.grow(2 * count * granule, one, no_limit));
    std::vector<MemoryBlockId> scattered;
    for (std::size_t i = 0; i < count; ++i) {
      scattered.push_back(take(granule));
      static_cast<void>(take(granule));
    }
    for (std::size_t i = 0; i < count; ++i) blocks.make_free(scattered[i], owner, owner == no_stream ? 0 : i + 1);
    return scattered;
  }

  PaperMapping storage;
  PaperClock clock;
  BlockMap blocks{512, granule};
  ReservedBytes reserved;
  MappedBacking<PaperMapping> backing{storage, blocks, reserved, std::size_t{1} << 30U};
};

}  // namespace

TEST_CASE("Memory is mapped in granules, and free memory before it is part of it", "[memory]") {
  MappedBlocksFixture f;
  REQUIRE(f.backing.grow(granule + 1, one, no_limit));
  CHECK(f.reserved.now == 2 * granule);
  CHECK(f.storage.mapped == 2 * granule);
  static_cast<void>(f.take(granule + 512));
  REQUIRE(f.backing.grow(2 * granule, one, no_limit));  // 3584 bytes are there
  CHECK(f.reserved.now == 4 * granule);
  CHECK(f.blocks.find(one, 2 * granule) != 0);
  CHECK(f.blocks.consistent());
}

TEST_CASE("Memory that is free of all goes back to the storage, no more of it than asked for", "[memory]") {
  MappedBlocksFixture f;
  const auto scattered = f.scatter(4, no_stream);
  f.backing.reclaim(2 * granule);
  CHECK(f.storage.mapped == 6 * granule);
  f.backing.reclaim(no_limit);
  CHECK(f.reserved.now == 4 * granule);
  CHECK(f.storage.mapped == 4 * granule);
  CHECK_FALSE(f.storage.backs(f.blocks[scattered[0]].address, granule));
  CHECK(f.blocks.consistent());
}

TEST_CASE("Memory of a stream does not go back to the storage", "[memory]") {
  MappedBlocksFixture f;
  static_cast<void>(f.scatter(4, one));
  f.backing.reclaim(no_limit);
  CHECK(f.reserved.now == 8 * granule);
}

TEST_CASE("L11: beyond the limit a stream's own memory is moved, and left behind when its work has passed",
          "[memory]") {
  MappedBlocksFixture f;
  const auto scattered = f.scatter(4, one);
  REQUIRE(f.backing.grow(4 * granule, one, 8 * granule));
  CHECK(f.reserved.now == 8 * granule);
  CHECK(f.storage.mapped == 8 * granule);
  const MemoryBlockId moved = f.blocks.find(one, 4 * granule);
  REQUIRE(moved != 0);
  CHECK(f.blocks[moved].position == 4);
  const MemoryAddress first = f.blocks[scattered[0]].address;
  f.backing.unmap_passed(f.clock);
  CHECK(f.storage.backs(first, granule));
  f.clock.done[0] = 1;
  f.backing.unmap_passed(f.clock);
  CHECK_FALSE(f.storage.backs(first, granule));
  CHECK(f.storage.backs(f.blocks[scattered[3]].address, granule));
  CHECK(f.storage.mapped == 8 * granule);
  CHECK(f.blocks.consistent());
}

TEST_CASE("Memory that the new memory continues stays where it is", "[memory]") {
  MappedBlocksFixture f;
  const auto scattered = f.scatter(4, one);
  const MemoryBlockId last = scattered.back();
  f.blocks.make_free(f.blocks[last].next, one, 5);
  REQUIRE(f.backing.grow(5 * granule, one, 8 * granule));  // two granules are there, three are moved beside them
  CHECK(f.blocks.find(one, 5 * granule) == last);
  CHECK(f.blocks[last].position == 5);
  CHECK(f.storage.mapped == 8 * granule);
}

TEST_CASE("L11: memory of another stream is not moved", "[memory]") {
  MappedBlocksFixture f;
  static_cast<void>(f.scatter(4, one));
  REQUIRE(f.backing.grow(4 * granule, two, 8 * granule));
  CHECK(f.storage.aliased == 0);
  CHECK(f.reserved.now == 12 * granule);
}

TEST_CASE("L7: what the capacity or the storage does not have is refused, and nothing is lost", "[memory]") {
  MappedBlocksFixture f;
  f.reserved.capacity = 4 * granule;
  REQUIRE(f.backing.grow(4 * granule, one, no_limit));
  static_cast<void>(f.take(4 * granule));
  CHECK_FALSE(f.backing.grow(1, one, no_limit));
  f.reserved.capacity = 8 * granule;
  f.storage.refuse = true;
  CHECK_FALSE(f.backing.grow(1, one, no_limit));
  f.storage.refuse = false;
  CHECK(f.reserved.now == 4 * granule);
  CHECK_FALSE(f.backing.grow(std::size_t{2} << 30U, one, no_limit));  // so many addresses there are not
  CHECK(f.backing.grow(1, one, no_limit));
  CHECK(f.blocks.consistent());
}

TEST_CASE("L13: everything goes back with the backing, whatever its state", "[memory]") {
  PaperMapping storage;
  {
    BlockMap blocks(512, granule);
    ReservedBytes reserved;
    blocks.add_stream(one);
    MappedBacking<PaperMapping> backing(storage, blocks, reserved, std::size_t{1} << 30U);
    CHECK(storage.calls == 0);
    REQUIRE(backing.grow(4 * granule, one, no_limit));
    blocks.make_unmapped(blocks.split_out(blocks.find(one, 4 * granule), {MemoryAddress{1} << 45U, granule}));
    storage.unmap(MemoryAddress{1} << 45U, granule);
  }
  CHECK(storage.mapped == 0);
  CHECK(storage.reserved == 0);
  CHECK(storage.fault.empty());
}
