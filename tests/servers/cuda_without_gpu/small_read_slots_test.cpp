#include <coxswain/tests/support/catch.hpp>

#include <coxswain/servers/cuda/memory/small_read_slots.hpp>

#include <array>
#include <cstddef>
#include <memory>
#include <new>
#include <thread>
#include <utility>
#include <vector>

using cox::Bytes;
using cox::detail::SmallReadSlots;

namespace {

/// Memory that counts itself.
struct Memories {
  int made = 0;
  [[nodiscard]] Bytes operator()() {
    ++made;
    return Bytes::zeroed(64);
  }
};

}  // namespace

TEST_CASE("Slots of small reads come back from any thread, and are had again before new ones are made") {
  Memories memories;
  SmallReadSlots slots;
  const auto make = [&] { return memories(); };
  for (int round = 0; round < 100; ++round) {
    SmallReadSlots::Slot one = slots.acquire(make);
    SmallReadSlots::Slot other = slots.acquire(make);
    CHECK(one->memory.size() == 64);
    CHECK(one.get() != other.get());
    std::thread([moved = std::move(one)] {}).join();
  }
  CHECK(memories.made == 2);
}

TEST_CASE("L7: no more than 64 slots of small reads are kept") {
  Memories memories;
  SmallReadSlots slots;
  const auto make = [&] { return memories(); };
  std::vector<SmallReadSlots::Slot> taken;
  for (int i = 0; i < 100; ++i) taken.push_back(slots.acquire(make));
  CHECK(memories.made == 100);
  taken.clear();
  for (int i = 0; i < 100; ++i) taken.push_back(slots.acquire(make));
  CHECK(memories.made == 136);
}

TEST_CASE("Slots of small reads that nobody has give their memory back when they are told to") {
  std::array<std::byte, 64> memory{};
  int alive = 0;
  const auto make = [&] {
    ++alive;
    return Bytes::adopt(memory.data(), memory.size(), &alive,
                        [](void* count) noexcept { --*static_cast<int*>(count); });
  };
  SmallReadSlots slots;
  SmallReadSlots::Slot kept = slots.acquire(make);
  for (int i = 0; i < 3; ++i) {
    const SmallReadSlots::Slot one = slots.acquire(make);
    const SmallReadSlots::Slot other = slots.acquire(make);
  }
  CHECK(alive == 3);
  slots.clear();
  CHECK(alive == 1);
  kept = nullptr;
  slots.clear();
  CHECK(alive == 0);
}

TEST_CASE("L13: a slot that comes back after its device destroys itself") {
  Memories memories;
  const auto make = [&] { return memories(); };
  auto slots = std::make_unique<SmallReadSlots>();
  SmallReadSlots::Slot before = slots->acquire(make);
  const SmallReadSlots::Slot after = slots->acquire(make);
  before = nullptr;
  slots = nullptr;
  CHECK(after->memory.size() == 64);  // the sanitizers see the rest
}

TEST_CASE("A slot whose memory cannot be had is none") {
  SmallReadSlots slots;
  CHECK_THROWS_AS(slots.acquire([]() -> Bytes { throw std::bad_alloc(); }), std::bad_alloc);
  CHECK(slots.acquire([] { return Bytes::zeroed(64); }) != nullptr);
}
