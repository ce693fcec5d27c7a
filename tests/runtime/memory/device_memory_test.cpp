#include <coxswain/tests/runtime/memory/pool_model.hpp>
#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tests/support/failing_allocation.hpp>

#include <coxswain/runtime/memory/device_memory.hpp>

#include <cstddef>
#include <new>
#include <utility>
#include <vector>

using namespace cox;
using namespace cox::test;

namespace {

struct MemoryFixture {
  using Memory = DeviceMemory<PaperMapping, PaperClock>;
  using Home = DeviceBuffer::Home;

  Memory::Buffer take(std::size_t bytes, StreamSlot stream = one, Home home = Home::Automatic) {
    return memory.allocate({.bytes = bytes, .stream = stream, .home = home, .label = {"test", 0}});
  }
  void use(const Memory::Buffer& buffer, Access access, StreamPosition at) {
    buffer->uses.prepare(clock);
    buffer->uses.record(access, at);
  }

  PaperClock clock;
  Memory memory{clock, {.capacity = 64 * granule}};
};

}  // namespace

TEST_CASE("L11: a dropped buffer is the stream's own again at once, and everybody's when the stream has passed it",
          "[memory]") {
  MemoryFixture f;
  auto buffer = f.take(40 * granule);
  const MemoryAddress address = buffer->address();
  f.use(buffer, Access::Write, {one, 3});
  buffer.reset();
  auto again = f.take(40 * granule);
  REQUIRE(again != nullptr);
  CHECK(again->address() == address);

  f.use(again, Access::Write, {one, 4});
  again.reset();
  const auto elsewhere = f.take(40 * granule, two);
  StreamPositions waits;
  elsewhere->uses.add_waits(Access::Write, two, f.clock, waits);
  CHECK(waits == StreamPositions{{one, 4}});
}

TEST_CASE("L11: a buffer that streams still read is nobody's until all of them are done", "[memory]") {
  MemoryFixture f;
  auto buffer = f.take(60 * granule);
  f.use(buffer, Access::Read, {one, 1});
  f.use(buffer, Access::Read, {two, 1});
  buffer.reset();
  CHECK(f.take(60 * granule) == nullptr);
  f.clock.done[0] = 1;
  CHECK(f.take(60 * granule) == nullptr);
  f.clock.done[1] = 1;
  CHECK(f.take(60 * granule) != nullptr);
}

TEST_CASE("Persistent memory stands apart, under the same cap", "[memory]") {
  MemoryFixture f;
  const auto weights = f.take(40 * granule, one, MemoryFixture::Home::Persistent);
  REQUIRE(weights != nullptr);
  auto activations = f.take(24 * granule);
  REQUIRE(activations != nullptr);
  CHECK(f.take(1) == nullptr);
  CHECK(f.memory.usage().bytes_in_use == 64 * granule);
  activations.reset();
  // What the one pool holds unused, the other may have.
  CHECK(f.take(20 * granule, one, MemoryFixture::Home::Persistent) != nullptr);
  CHECK(f.memory.report().capacity == 64 * granule);
}

TEST_CASE("No bytes take no memory, and a failure leaves nothing behind", "[memory]") {
  MemoryFixture f;
  const auto all = f.take(64 * granule);
  const auto none = f.take(0);
  REQUIRE(none != nullptr);
  CHECK(none->address() == 0);
  CHECK(f.memory.is_live(*none));
  for (int i = 0; i < 100; ++i) CHECK(f.take(1) == nullptr);
  CHECK(f.memory.usage().number_allocs == 1);
}

TEST_CASE("Pools are installed anew only where nothing lives", "[memory]") {
  MemoryFixture f;
  auto buffer = f.take(granule);
  CHECK_FALSE(f.memory.install({.capacity = 8 * granule}));
  buffer.reset();
  CHECK(f.memory.install({.capacity = 8 * granule}));
  CHECK(f.take(9 * granule) == nullptr);
  CHECK(f.take(8 * granule) != nullptr);
  CHECK(f.memory.capacity() == 8 * granule);
}

TEST_CASE("L11: pools are not installed anew while a stream still uses memory that was dropped", "[memory]") {
  MemoryFixture f;
  auto buffer = f.take(granule);
  f.use(buffer, Access::Write, {one, 1});
  buffer.reset();
  CHECK_FALSE(f.memory.install({}));
  f.clock.done[0] = 1;
  CHECK(f.memory.install({}));
}

TEST_CASE("A buffer that has been freed is known as such", "[memory]") {
  MemoryFixture f;
  auto buffer = f.take(granule);
  const DeviceBuffer& known = *buffer;
  const MemoryAllocation allocation = buffer->allocation;
  CHECK(f.memory.is_live(known));
  buffer.reset();
  f.memory.collect_returned();
  DeviceBuffer copy(std::make_shared<ReturnedBuffers>());
  copy.bytes = granule;
  copy.allocation = allocation;
  CHECK_FALSE(f.memory.is_live(copy));
}

TEST_CASE("L13: buffers may outlive the memory", "[memory]") {
  std::vector<MemoryFixture::Memory::Buffer> buffers;
  {
    MemoryFixture f;
    for (int i = 0; i < 10; ++i) buffers.push_back(f.take(granule));
    buffers.resize(5);
  }
  CHECK(buffers.size() == 5);  // freed below: by themselves
}

TEST_CASE("Pools that cannot be installed for want of memory stay as they were", "[memory]") {
  MemoryFixture f;
  const std::size_t capacity = f.memory.capacity();
  bool installed = false;
  int failures = 0;
  for (int n = 0; !installed; ++n) {
    allocations_until_failure = n;
    try {
      installed = f.memory.install({.capacity = 8 * granule, .slack = 7});
    } catch (const std::bad_alloc&) {
      ++failures;
    }
    allocations_until_failure = -1;
    if (installed) break;
    REQUIRE(f.memory.capacity() == capacity);
    REQUIRE(f.take(granule) != nullptr);
    f.memory.collect_returned();
  }
  CHECK(failures > 0);
  CHECK(f.memory.capacity() == 8 * granule);
  CHECK(f.take(granule) != nullptr);
}
