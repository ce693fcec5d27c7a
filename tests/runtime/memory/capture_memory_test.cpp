#include <coxswain/tests/support/catch.hpp>

#include <coxswain/runtime/buffer/capture_memory.hpp>

#include <memory>

using namespace cox;

namespace {

struct Fixture {
  ManagedMemory memory_of(std::size_t bytes) {
    ManagedMemory memory = ManagedMemory::create({}, 64);
    auto* const buffer = new DeviceBuffer(returned);
    buffer->bytes = bytes;
    memory.state().resource.reset(buffer);
    return memory;
  }
  ~Fixture() {
    warm_up.clear();
    for (DeviceBuffer* buffer = returned->close(); buffer != nullptr;)
      delete std::exchange(buffer, buffer->next_returned);
  }

  std::shared_ptr<ReturnedBuffers> returned = std::make_shared<ReturnedBuffers>();
  CaptureMemory warm_up;
};

}  // namespace

TEST_CASE("A capture gets what its rehearsal has dropped, by size and once", "[memory]") {
  Fixture f;
  for (int i = 0; i < 2; ++i) {
    const ManagedMemory memory = f.memory_of(100);
    for (int use = 0; use < 3; ++use) f.warm_up.keep(memory);  // however often it was used
  }
  CHECK(f.warm_up.take(99) == nullptr);
  CHECK(f.warm_up.take(100) != nullptr);
  CHECK(f.warm_up.take(100) != nullptr);
  CHECK(f.warm_up.take(100) == nullptr);
}

TEST_CASE("A capture does not get what somebody still refers to", "[memory]") {
  Fixture f;
  ManagedMemory handle = f.memory_of(100);
  f.warm_up.keep(handle);
  CHECK(f.warm_up.take(100) == nullptr);
  handle = ManagedMemory();
  CHECK(f.warm_up.take(100) != nullptr);
}

TEST_CASE("Memory that was never had is of no use to a capture", "[memory]") {
  Fixture f;
  f.warm_up.keep(ManagedMemory::create({}, 64));
  CHECK(f.warm_up.take(0) == nullptr);
}
