#include <coxswain/tests/runtime/memory/pool_model.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/runtime/memory/pinned_memory.hpp>

#include <memory>
#include <thread>
#include <vector>

using namespace cox;
using namespace cox::test;

namespace {

auto memory_of(std::size_t capacity) {
  return std::make_shared<PinnedMemory<PaperMapping>>(MemoryPoolOptions{.alignment = 64, .capacity = capacity});
}

}  // namespace

TEST_CASE("Pinned bytes say what they are, and give their memory back", "[memory]") {
  const auto memory = memory_of(1U << 20U);
  auto bytes = memory->allocate(100, {"test", 0});
  REQUIRE(bytes.has_value());
  CHECK(bytes->size() == 100);
  CHECK(bytes->property() == AllocationProperty::Pinned);
  CHECK(memory->usage().bytes_in_use == 100);
  const Bytes part = bytes->slice(10, 10);
  bytes.reset();
  CHECK(memory->usage().bytes_in_use == 100);  // the part stands on it
}

TEST_CASE("L7: pinned memory has a cap, and what was given back can be had again", "[memory]") {
  const auto memory = memory_of(8192);
  auto first = memory->allocate(5000, {});
  REQUIRE(first.has_value());
  CHECK_FALSE(memory->allocate(5000, {}).has_value());
  first.reset();
  CHECK(memory->allocate(8192, {}).has_value());
  CHECK(memory->allocate(0, {})->empty());
}

TEST_CASE("Pinned bytes may be dropped on any thread, and outlive whoever made them", "[memory]") {
  auto memory = memory_of(1U << 24U);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([memory] {
      for (int i = 0; i < 1000; ++i) static_cast<void>(memory->allocate(1000, {}));
    });
  for (auto& thread : threads) thread.join();
  CHECK(memory->usage().number_allocs == 0);
  const auto last = memory->allocate(1, {});
  const std::weak_ptr watch = memory;
  memory.reset();
  CHECK_FALSE(watch.expired());
}
