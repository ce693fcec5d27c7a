#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tests/support/failing_allocation.hpp>

#include <coxswain/runtime/handle/recycled_memory.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <list>
#include <memory>
#include <new>
#include <set>
#include <thread>
#include <utility>
#include <vector>

using cox::detail::make_recycled;
using cox::detail::RecycledMemory;
using cox::detail::RecyclingAllocator;
using cox::test::live_blocks;

namespace {

/// How many blocks of `bytes` this thread has when `count` were taken and given back.
long kept_of(std::size_t count, std::size_t bytes) {
  RecycledMemory::free_cached();
  const long before = live_blocks();
  std::vector<void*> taken(count);
  const long own = live_blocks() - before;
  for (void*& each : taken) each = RecycledMemory::allocate(bytes);
  for (void* const each : taken) RecycledMemory::deallocate(each, bytes);
  return live_blocks() - before - own;
}

/// Whether anything is kept at all: under AddressSanitizer it is not.
bool keeps() { return kept_of(1, 16) == 1; }

}  // namespace

TEST_CASE("A thread keeps the memory of up to 64 objects of a size, of no large ones") {
  if (!keeps()) return;  // nothing to see
  CHECK(kept_of(200, 100) == 64);
  CHECK(kept_of(10, RecycledMemory::max_size) == 10);
  CHECK(kept_of(10, RecycledMemory::max_size + 1) == 0);
  CHECK(kept_of(10, 100) == 10);
  const long before = live_blocks();
  RecycledMemory::free_cached();
  CHECK(live_blocks() == before - 10);
}

TEST_CASE("Recycled memory is as large as was asked for, and nobody else's") {
  constexpr std::array<std::size_t, 6> sizes{1, 8, 16, 17, 1000, 1024};
  for (int round = 0; round < 3; ++round) {
    std::set<void*> all;
    std::vector<std::pair<void*, std::size_t>> taken;
    for (int i = 0; i < 100; ++i)
      for (const std::size_t size : sizes) {
        void* const memory = RecycledMemory::allocate(size);
        std::memset(memory, i, size);
        CHECK(all.insert(memory).second);
        taken.emplace_back(memory, size);
      }
    for (std::size_t i = 0; i < taken.size(); ++i) {
      const auto& [memory, size] = taken[i];
      const auto* const bytes = static_cast<const unsigned char*>(memory);
      CHECK(std::all_of(bytes, bytes + size, [&](unsigned char byte) { return byte == i / sizes.size(); }));
      RecycledMemory::deallocate(memory, size);
    }
  }
}

TEST_CASE("What another thread has taken may be given back, and goes with the thread that keeps it") {
  RecycledMemory::free_cached();
  const long before = live_blocks();
  std::list<std::shared_ptr<int>, RecyclingAllocator<std::shared_ptr<int>>> made;
  for (int i = 0; i < 30; ++i) made.push_back(make_recycled<int>(i));
  std::thread([&] {
    int expected = 0;
    for (const auto& each : made) CHECK(*each == expected++);
    made.clear();
  }).join();
  CHECK(live_blocks() == before);
}

TEST_CASE("Objects that outlive what their thread keeps are freed all the same") {
  struct Late {
    std::shared_ptr<int> held;
    ~Late() { held.reset(); }  // after the end of what the thread keeps, which is younger
  };
  const long before = live_blocks();
  std::thread([] {
    static thread_local Late late;
    late.held = make_recycled<int>(1);
    auto other = make_recycled<int>(2);
  }).join();
  CHECK(live_blocks() == before);
}

TEST_CASE("Where there is no memory the allocator says so") {
  RecycledMemory::free_cached();
  cox::test::allocations_until_failure = 0;
  CHECK_THROWS_AS(make_recycled<int>(1), std::bad_alloc);
  cox::test::allocations_until_failure = -1;
}
