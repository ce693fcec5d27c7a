#pragma once

#include <coxswain/perf/harness/suite.hpp>
#include <coxswain/perf/trace/allocation_trace.hpp>
#include <coxswain/runtime/memory/memory_pool.hpp>
#include <coxswain/servers/host/detail/host_storage.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <memory_resource>
#include <random>
#include <span>
#include <stdexcept>
#include <vector>

namespace cox::perf {

/// Streams that are always `lag` pieces of work behind what has been freed on them.
class LaggingClock {
 public:
  explicit LaggingClock(std::uint64_t lag) noexcept : lag_(lag) {}
  [[nodiscard]] std::uint64_t completed(StreamSlot) const noexcept { return submitted > lag_ ? submitted - lag_ : 0; }

  std::uint64_t submitted = 0;

 private:
  std::uint64_t lag_;
};

/// The same storage for a pool that is not to have memory behind several addresses.
class WithoutAliases : detail::HostStorage {
 public:
  using HostStorage::granularity, HostStorage::HostStorage, HostStorage::map, HostStorage::release,
      HostStorage::reserve, HostStorage::trim, HostStorage::unmap;
};
static_assert(MappingStorage<WithoutAliases> && !AliasingStorage<WithoutAliases>);

/// cox::MemoryPool over addresses of this process. The memory is mapped, never touched.
template <class Storage>
class BasicPoolUnderTest {
 public:
  using Allocation = MemoryAllocation;

  explicit BasicPoolUnderTest(std::uint64_t lag = 400)
      : clock_(lag), pool_(storage_, clock_, {.address_space = std::size_t{1} << 42U}) {}

  Allocation take(std::size_t bytes, std::uint32_t stream = 0) {
    const auto allocation = pool_.allocate(bytes, StreamSlot{stream});
    if (!allocation) throw std::runtime_error("the pool has no memory");
    return *allocation;
  }
  void free(const Allocation& allocation, std::uint32_t stream = 0) {
    const StreamPosition use{StreamSlot{stream}, ++clock_.submitted};
    pool_.free(allocation, {&use, 1});
  }
  [[nodiscard]] MemoryUsage usage() const noexcept { return pool_.usage(); }

 private:
  Storage storage_{std::size_t{2} << 20U};
  LaggingClock clock_;
  MemoryPool<Storage, LaggingClock> pool_;
};
using PoolUnderTest = BasicPoolUnderTest<detail::HostStorage>;

/// malloc and free, which do not order anything by streams.
class HeapUnderTest {
 public:
  using Allocation = void*;
  static Allocation take(std::size_t bytes) {
    void* const memory = std::malloc(bytes);
    asm volatile("" ::"r"(memory) : "memory");  // or the compiler leaves the pair out
    return memory;
  }
  static void free(Allocation memory) { std::free(memory); }
};

/// std::pmr::unsynchronized_pool_resource.
class PmrUnderTest {
 public:
  struct Allocation {
    void* memory;
    std::size_t bytes;
  };
  Allocation take(std::size_t bytes) { return {resource_.allocate(bytes), bytes}; }
  void free(const Allocation& allocation) { resource_.deallocate(allocation.memory, allocation.bytes); }

 private:
  std::pmr::unsynchronized_pool_resource resource_{{.max_blocks_per_chunk = 0, .largest_required_pool_block = 65'536}};
};

/// Nanoseconds of one allocation and its freeing with `live` others alive: of one size again and again; and of the size
/// of one of the others, which is freed for it.
template <class Allocator>
Sample pairs(std::size_t live, std::size_t count) {
  Allocator allocator;
  std::mt19937_64 random(7);
  std::vector<std::size_t> sizes(live);
  std::vector<typename Allocator::Allocation> others;
  others.reserve(live);
  for (std::size_t& size : sizes) {
    size = 512 * (1 + random() % 64);
    others.push_back(allocator.take(size));
  }
  constexpr std::size_t bytes = 16'384;
  allocator.free(allocator.take(bytes));
  const auto start = std::chrono::steady_clock::now();
  for (std::size_t i = 0; i < count; ++i) allocator.free(allocator.take(bytes));
  const auto middle = std::chrono::steady_clock::now();
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t chosen = random() % live;
    allocator.free(others[chosen]);
    others[chosen] = allocator.take(sizes[chosen]);
  }
  const auto end = std::chrono::steady_clock::now();
  for (const auto& other : others) allocator.free(other);
  const auto per_pair = [count](auto time) {
    return std::chrono::duration<double, std::nano>(time).count() / static_cast<double>(count);
  };
  return {per_pair(middle - start), per_pair(end - middle)};
}

/// Bytes reserved at most divided by bytes in use at most, and nanoseconds per event, with a device that is always
/// `lag` frees behind the program.
template <class Storage>
Sample replay(const AllocationTrace& trace, std::uint64_t lag) {
  BasicPoolUnderTest<Storage> pool(lag);
  std::vector<MemoryAllocation> alive(trace.allocations);
  std::vector<std::uint32_t> streams(trace.allocations);
  const auto start = std::chrono::steady_clock::now();
  for (const AllocationTrace::Event& event : trace.events) {
    if (event.bytes == 0) {
      pool.free(alive[event.allocation], streams[event.allocation]);
    } else {
      alive[event.allocation] = pool.take(event.bytes, event.stream);
      streams[event.allocation] = event.stream;
    }
  }
  const std::chrono::duration<double, std::nano> whole = std::chrono::steady_clock::now() - start;
  const MemoryUsage usage = pool.usage();
  return {static_cast<double>(usage.peak_bytes_reserved) / static_cast<double>(usage.peak_bytes_in_use),
          whole.count() / static_cast<double>(trace.events.size())};
}

}  // namespace cox::perf
