#include <coxswain/runtime/memory/free_list.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <cstddef>
#include <cstdint>
#include <random>
#include <set>
#include <utility>

using namespace cox;

namespace {

MemoryBlockId block_of(MemoryBlockTable& blocks, std::size_t size) {
  blocks.reserve(1);
  const MemoryBlockId id = blocks.allocate();
  blocks[id].size = size;
  blocks[id].state = MemoryBlock::State::Free;
  return id;
}

}  // namespace

TEST_CASE("A free list finds a block that is large enough whenever there is one a little larger", "[memory]") {
  MemoryBlockTable blocks;
  FreeList list(512);
  std::mt19937_64 random(GENERATE(1U, 2U, 3U));
  std::set<std::pair<std::size_t, MemoryBlockId>> model;
  for (int step = 0; step < 20'000; ++step) {
    const std::size_t size = 512 * (1 + (random() >> (random() % 40 + 24)));
    if (random() % 2 == 0) {
      const MemoryBlockId id = block_of(blocks, size);
      list.insert(blocks, id);
      model.emplace(size, id);
    } else if (const MemoryBlockId id = list.find(blocks, size); id != 0) {
      REQUIRE(blocks[id].size >= size);
      REQUIRE(model.erase({blocks[id].size, id}) == 1);
      list.remove(blocks, id);
      blocks.free(id);
    } else {
      // Not found, though there: only in the size's own list, whose blocks are at most a 32nd larger.
      const auto there = model.lower_bound({size + size / 32 + 512, 0});
      REQUIRE(there == model.end());
    }
    REQUIRE(list.empty() == model.empty());
  }
}

TEST_CASE("A free list visits each block once, larger lists first, also when the visit removes it", "[memory]") {
  MemoryBlockTable blocks;
  FreeList list(512);
  for (std::size_t i = 1; i <= 1000; ++i) list.insert(blocks, block_of(blocks, 512 * i));
  std::size_t visited = 0;
  list.for_each(blocks, [&](MemoryBlockId id) {
    ++visited;
    list.remove(blocks, id);
    return visited < 600;
  });
  CHECK(visited == 600);
  std::size_t left = 0;
  list.for_each(blocks, [&](MemoryBlockId id) {
    CHECK(blocks[id].size <= 512 * 416);
    ++left;
    return true;
  });
  CHECK(left == 400);
}

TEST_CASE("A free list caches the block freed last of a size as it is", "[memory]") {
  MemoryBlockTable blocks;
  FreeList list(512);
  const MemoryBlockId first = block_of(blocks, 4096);
  const MemoryBlockId second = block_of(blocks, 4096);
  CHECK(list.cache(blocks, first) == 0);
  CHECK_FALSE(list.empty());
  CHECK(list.cache(blocks, second) == first);
  CHECK(list.take_cached(blocks, 8192) == 0);
  CHECK(list.take_cached(blocks, 4096) == second);
  CHECK(list.take_cached(blocks, 4096) == 0);
  CHECK(list.cache(blocks, first) == 0);
  CHECK(list.take_any_cached() == first);
  CHECK(list.take_any_cached() == 0);
  CHECK(list.empty());
}

TEST_CASE("A free list that is searched misses no block, however many of nearly its size there are", "[memory]") {
  MemoryBlockTable blocks;
  FreeList list(512);
  const MemoryBlockId large = block_of(blocks, 65 * 512);
  list.insert(blocks, large);
  for (int i = 0; i < 20; ++i) list.insert(blocks, block_of(blocks, 64 * 512));
  CHECK(list.find(blocks, 65 * 512) == 0);  // constant time
  CHECK(list.search(blocks, 65 * 512) == large);
  CHECK(list.search(blocks, 66 * 512) == 0);
}
