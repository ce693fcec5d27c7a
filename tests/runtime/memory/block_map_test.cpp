#include <coxswain/runtime/memory/block_map.hpp>
#include <coxswain/tests/runtime/memory/paper_storage.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

using namespace cox;
using namespace cox::test;

namespace {

struct Clock {
  [[nodiscard]] std::uint64_t completed(StreamSlot) const noexcept { return done; }
  std::uint64_t done = 0;
};

struct BlocksFixture {
  BlocksFixture() {
    blocks.add_stream(one);
    blocks.add_stream(two);
    blocks.reserve(100);
  }
  MemoryBlockId free_range(MemoryAddress address, std::size_t bytes, StreamSlot owner, std::uint64_t position = 0) {
    const MemoryBlockId id = blocks.add({address, bytes});
    blocks.make_free(id, owner, position);
    return id;
  }
  /// The first `size` bytes of what is found, in use.
  MemoryBlockId take(std::size_t size, StreamSlot stream = one) {
    const MemoryBlockId id = blocks.find(stream, size);
    REQUIRE(id != 0);
    blocks.take(id, size);
    blocks[id].state = MemoryBlock::State::Live;
    return id;
  }
  [[nodiscard]] std::vector<std::size_t> sizes() const {
    std::vector<std::size_t> found;
    blocks.for_each([&](MemoryBlockId, const MemoryBlock& block) { found.push_back(block.size); });
    return found;
  }

  BlockMap blocks{512, 4096};
};

}  // namespace

TEST_CASE("A block that is taken leaves the rest free beside it", "[memory]") {
  BlocksFixture f;
  const MemoryBlockId first = f.free_range(8192, 4096, one, 7);
  CHECK(f.take(1024) == first);
  CHECK(f.blocks[first].size == 1024);
  const MemoryBlockId rest = f.blocks[first].next;
  CHECK(f.blocks[rest].address == 8192 + 1024);
  CHECK(f.blocks[rest].size == 3072);
  CHECK(f.blocks[rest].position == 7);
  CHECK(f.blocks.is_free_of(rest, one));
  CHECK_FALSE(f.blocks.is_free_of(first, one));
  CHECK(f.blocks.find(one, 3072) == rest);
  CHECK(f.blocks.find(two, 512) == 0);
  CHECK(f.blocks.search_others(512) == rest);
  CHECK(f.blocks.consistent());
}

TEST_CASE("Free neighbours of one stream are one block, which waits for the later use", "[memory]") {
  BlocksFixture f;
  f.free_range(8192, 3 * 512, one);
  const MemoryBlockId a = f.take(512);
  const MemoryBlockId b = f.take(512);
  const MemoryBlockId c = f.take(512);
  f.blocks.make_free(a, one, 5);
  f.blocks.make_free(c, one, 3);
  CHECK(f.sizes() == std::vector<std::size_t>{512, 512, 512});
  f.blocks.make_free(b, one, 4);
  CHECK(f.sizes() == std::vector<std::size_t>{3 * 512});
  CHECK(f.blocks[a].position == 5);
  CHECK(f.blocks.consistent());
}

TEST_CASE("Free neighbours of different streams stay apart until both are free of all", "[memory]") {
  BlocksFixture f;
  f.free_range(8192, 1024, one);
  const MemoryBlockId a = f.take(512);
  const MemoryBlockId b = f.take(512);
  f.blocks.make_free(a, one, 5);
  f.blocks.make_free(b, two, 6);
  CHECK(f.sizes().size() == 2);
  CHECK_FALSE(f.blocks.share_completed(Clock{4}));
  CHECK(f.blocks.share_completed(Clock{5}));
  CHECK(f.blocks.is_free_of(a, no_stream));
  CHECK(f.blocks[a].position == 0);
  CHECK(f.sizes().size() == 2);
  CHECK(f.blocks.share_completed(Clock{6}));
  CHECK(f.sizes() == std::vector<std::size_t>{1024});
  CHECK(f.blocks.consistent());
}

TEST_CASE("A stream's free memory is joined with what is free of all beside it where that helps", "[memory]") {
  BlocksFixture f;
  f.free_range(8192, 1024, one);
  const MemoryBlockId a = f.take(512);
  const MemoryBlockId b = f.take(512);
  const MemoryBlockId apart = f.free_range(1 << 20, 512, no_stream);
  f.blocks.make_free(a, no_stream, 0);
  f.blocks.make_free(b, one, 6);
  CHECK_FALSE(f.blocks.merge_shared(two, 1024));
  CHECK_FALSE(f.blocks.merge_shared(one, 1025));
  CHECK(f.blocks.is_free_of(a, no_stream));
  CHECK(f.blocks.merge_shared(one, 1024));
  CHECK(f.blocks.is_free_of(a, one));
  CHECK(f.blocks[a].size == 1024);
  CHECK(f.blocks[a].position == 6);
  CHECK(f.blocks.is_free_of(apart, no_stream));
  CHECK_FALSE(f.blocks.merge_shared(one, 1025));
  CHECK(f.blocks.consistent());
}

TEST_CASE("A whole run of a stream's and everybody's free memory is joined, however it begins", "[memory]") {
  const std::size_t begin = GENERATE(0U, 1U);
  BlocksFixture f;
  f.free_range(8192, 6 * 512, one);
  std::vector<MemoryBlockId> parts;
  for (int i = 0; i < 6; ++i) parts.push_back(f.take(512));
  for (std::size_t i = 0; i < 5; ++i) f.blocks.make_free(parts[i], i % 2 == begin ? one : no_stream, 0);
  CHECK_FALSE(f.blocks.merge_shared(one, 6 * 512));
  CHECK(f.sizes().size() == 6);
  CHECK(f.blocks.merge_shared(one, 4 * 512 + 1));
  CHECK(f.blocks.is_free_of(parts[0], one));
  CHECK(f.blocks[parts[0]].size == 5 * 512);
  CHECK(f.blocks.consistent());
}

TEST_CASE("A cached block is found by its size alone, and joins others when it is listed", "[memory]") {
  BlocksFixture f;
  f.free_range(8192, 1024, one);
  const MemoryBlockId a = f.take(512);
  f.blocks.cache(a, one, 9);
  CHECK(f.sizes().size() == 2);
  CHECK(f.blocks.take_cached(two, 512) == 0);
  CHECK(f.blocks.take_cached(one, 1024) == 0);
  CHECK(f.blocks.take_cached(one, 512) == a);
  CHECK(f.blocks.take_cached(one, 512) == 0);
  f.blocks.cache(a, one, 9);
  CHECK(f.blocks.find(one, 1024) == 0);
  CHECK(f.blocks.list_all_cached());
  CHECK_FALSE(f.blocks.list_all_cached());
  CHECK(f.blocks.find(one, 1024) == a);
  CHECK(f.blocks.consistent());
}

TEST_CASE("A block that is cached after another of its size has the other listed", "[memory]") {
  BlocksFixture f;
  f.free_range(8192, 1024, one);
  const MemoryBlockId a = f.take(512);
  const MemoryBlockId b = f.take(512);
  f.blocks.cache(a, one, 1);
  f.blocks.cache(b, one, 2);
  CHECK(f.blocks.find(one, 512) == a);
  CHECK(f.blocks.take_cached(one, 512) == b);
}

TEST_CASE("A part cut out of a block leaves what is on either side listed", "[memory]") {
  BlocksFixture f;
  const MemoryBlockId all = f.free_range(4096 - 512, 3 * 4096, one, 2);
  const MemoryBlockId middle = f.blocks.split_out(all, {4096, 4096});
  CHECK(middle != all);
  CHECK(f.blocks[middle].address == 4096);
  CHECK(f.blocks[middle].size == 4096);
  CHECK(f.blocks.find(one, 512) == all);
  CHECK(f.blocks[all].size == 512);
  CHECK(f.blocks[f.blocks[middle].next].size == 2 * 4096 - 512);
  f.blocks.make_unmapped(middle);
  CHECK(f.blocks.find_unmapped(4096) == middle);
  CHECK(f.blocks.find_unmapped(8192) == 0);
  CHECK(f.blocks.consistent());
  const MemoryBlockId again = f.blocks.split_out(middle, {4096, 4096});
  CHECK(again == middle);
  f.blocks.make_free(again, one, 0);
  CHECK(f.sizes() == std::vector<std::size_t>{3 * 4096});
  CHECK(f.blocks[all].position == 2);
}

TEST_CASE("A dropped block is forgotten, and its record used again", "[memory]") {
  BlocksFixture f;
  const MemoryBlockId id = f.free_range(8192, 4096, no_stream);
  f.blocks.remove(id);
  CHECK(f.sizes().empty());
  CHECK(f.blocks.find(one, 512) == 0);
  CHECK(f.blocks.add({4096, 512}) == id);
}

TEST_CASE("A block that is not listed where it belongs is not consistent", "[memory]") {
  BlocksFixture f;
  const MemoryBlockId id = f.free_range(8192, 4096, one);
  CHECK(f.blocks.consistent());
  f.blocks[id].owner = two;
  CHECK_FALSE(f.blocks.consistent());
  f.blocks[id].owner = one;
  f.blocks.take(id, 512);
  CHECK_FALSE(f.blocks.consistent());  // free, but in no list
}
