#include <coxswain/tests/support/catch.hpp>

#include <coxswain/runtime/handle/managed_memory.hpp>

#include <memory>
#include <thread>
#include <utility>
#include <vector>

using cox::ManagedMemory;
using cox::ManagedMemoryHandle;
using cox::MemoryOwner;

namespace {

struct Resource final : cox::MemoryResource {
  explicit Resource(bool& gone) : gone_(gone) {}
  void release() noexcept override {
    gone_ = true;
    delete this;
  }
  bool& gone_;
};

}  // namespace

TEST_CASE("L11: memory is freed when the last handle and binding is gone, not before") {
  bool freed = false;
  ManagedMemoryHandle handle(ManagedMemory::create({}, 64));
  handle.memory().state().resource.reset(new Resource(freed));
  ManagedMemory queued = handle.memory();
  handle = ManagedMemoryHandle();
  REQUIRE_FALSE(freed);
  ManagedMemory moved = std::move(queued);
  queued = ManagedMemory();
  REQUIRE_FALSE(freed);
  moved = ManagedMemory::create({}, 64);
  REQUIRE(freed);
}

TEST_CASE("Memory may be changed in place while one handle refers to it, whatever bindings do") {
  ManagedMemoryHandle handle(ManagedMemory::create({}, 64));
  const ManagedMemory binding = handle.memory();
  REQUIRE(handle.can_mut());
  {
    const ManagedMemoryHandle other = handle;
    REQUIRE_FALSE(handle.can_mut());
  }
  REQUIRE(handle.can_mut());
  ManagedMemoryHandle moved = std::move(handle);
  REQUIRE(moved.can_mut());
  const ManagedMemory detached = std::move(moved).into_memory();
  REQUIRE(detached == binding);
  REQUIRE_FALSE(moved.can_mut());  // NOLINT(bugprone-use-after-move): promised to be empty
}

TEST_CASE("Memories and generations have ids of their own") {
  REQUIRE(ManagedMemory::create({}, 64).id() != ManagedMemory::create({}, 64).id());
  REQUIRE(MemoryOwner::next_generation() != MemoryOwner::next_generation());
}

TEST_CASE("Handles of one memory may be copied and dropped on many threads") {
  bool freed = false;
  {
    ManagedMemoryHandle handle(ManagedMemory::create({}, 64));
    handle.memory().state().resource.reset(new Resource(freed));
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i)
      threads.emplace_back([handle] {
        for (int n = 0; n < 1000; ++n) ManagedMemoryHandle(ManagedMemoryHandle(handle).memory());
      });
    for (auto& thread : threads) thread.join();
    threads.clear();
    REQUIRE(handle.can_mut());
  }
  REQUIRE(freed);
}

TEST_CASE("L11: references that a handle gives out count, also those that it keeps in reserve") {
  for (const int given : {0, 1, 31, 32, 33, 100}) {
    bool freed = false;
    std::vector<ManagedMemory> references;
    {
      ManagedMemoryHandle handle(ManagedMemory::create({}, 64));
      handle.memory().state().resource.reset(new Resource(freed));
      for (int i = 0; i < given; ++i) references.push_back(handle.reference());
      ManagedMemoryHandle moved = std::move(handle);  // with its reserve
      references.push_back(moved.reference());
      moved = ManagedMemoryHandle(moved);
      REQUIRE(moved.can_mut());
    }
    REQUIRE_FALSE(freed);
    while (references.size() > 1) references.pop_back();
    REQUIRE(references.front().is_last());
    references.clear();
    REQUIRE(freed);
  }
}

TEST_CASE("L11: many threads take references from one handle and drop them") {
  bool freed = false;
  {
    const ManagedMemoryHandle handle = [&] {
      ManagedMemoryHandle made(ManagedMemory::create({}, 64));
      made.memory().state().resource.reset(new Resource(freed));
      return made;
    }();
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i)
      threads.emplace_back([&handle] {
        std::vector<ManagedMemory> references;
        for (int n = 0; n < 20'000; ++n) {
          references.push_back(handle.reference());
          if (references.size() > 50) references.clear();
        }
      });
    for (std::thread& thread : threads) thread.join();
    REQUIRE_FALSE(freed);
  }
  REQUIRE(freed);
}
