#include <coxswain/device_handle/queue/block_pool.hpp>

#include <coxswain/tests/support/catch.hpp>

#include <cstdint>
#include <set>
#include <vector>

using cox::BlockPool;

TEST_CASE("A block pool gives distinct, aligned blocks and uses again what came back", "[block_pool]") {
  BlockPool pool;
  std::set<void*> blocks;
  for (int i = 0; i < 20; ++i) blocks.insert(pool.allocate());
  CHECK(blocks.size() == 20);
  for (void* block : blocks) CHECK(reinterpret_cast<std::uintptr_t>(block) % BlockPool::block_alignment == 0);
  CHECK(pool.bytes() == 20 * BlockPool::block_bytes);
  for (void* block : blocks) pool.recycle(block);
  CHECK(pool.bytes() == 20 * BlockPool::block_bytes);
  for (int i = 0; i < 20; ++i) {
    void* const again = pool.allocate();
    CHECK(blocks.contains(again));
    pool.free(again);
  }
  CHECK(pool.bytes() == 0);
}

TEST_CASE("L7: a block pool keeps a bounded number of free blocks", "[block_pool]") {
  BlockPool pool;
  std::vector<void*> blocks;
  for (int i = 0; i < 1000; ++i) blocks.push_back(pool.allocate());
  for (void* block : blocks) pool.recycle(block);
  CHECK(pool.bytes() == static_cast<std::size_t>(BlockPool::retained_limit) * BlockPool::block_bytes);
  pool.trim();
  CHECK(pool.bytes() == static_cast<std::size_t>(BlockPool::resting_limit) * BlockPool::block_bytes);
}
