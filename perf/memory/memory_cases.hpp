#pragma once

#include <coxswain/perf/harness/suite.hpp>
#include <coxswain/perf/trace/allocation_trace.hpp>
#include <coxswain/runtime/memory/memory_pool.hpp>
#include <coxswain/servers/host/memory/host_storage.hpp>

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

/// cox::MemoryPool over some storage, whose memory is mapped, never touched.
template <class Storage>
class BasicPoolUnderTest {
 public:
  using Allocation = MemoryAllocation;

  /// Over addresses of this process.
  explicit BasicPoolUnderTest(std::uint64_t lag = 400)
      : BasicPoolUnderTest(lag, {.address_space = std::size_t{1} << 42U}, std::size_t{2} << 20U) {}
  /// `storage`: what a Storage is made from.
  template <class... A>
  BasicPoolUnderTest(std::uint64_t lag, const MemoryPoolOptions& options, const A&... storage)
      : storage_(storage...), clock_(lag), pool_(storage_, clock_, options) {}

  Allocation allocate(std::size_t bytes, std::uint32_t stream = 0) {
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
  Storage storage_;
  LaggingClock clock_;
  MemoryPool<Storage, LaggingClock> pool_;
};
using PoolUnderTest = BasicPoolUnderTest<detail::HostStorage>;

/// malloc and free, which do not order anything by streams.
class HeapUnderTest {
 public:
  using Allocation = void*;
  static Allocation allocate(std::size_t bytes) {
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
  Allocation allocate(std::size_t bytes) { return {resource_.allocate(bytes), bytes}; }
  void free(const Allocation& allocation) { resource_.deallocate(allocation.memory, allocation.bytes); }

 private:
  std::pmr::unsynchronized_pool_resource resource_{{.max_blocks_per_chunk = 0, .largest_required_pool_block = 65'536}};
};

/// Nothing: what the program itself costs that asks for memory, and remembers as much of it as of the pool's.
class NothingUnderTest {
 public:
  using Allocation = MemoryAllocation;
  static Allocation allocate(std::size_t bytes) {
    Allocation allocation;
    allocation.size = bytes;
    asm volatile("" : : "r"(&allocation) : "memory");
    return allocation;
  }
  static void free(const Allocation& allocation) { asm volatile("" : : "r"(allocation.block), "r"(allocation.size)); }
};

/// Nanoseconds of one allocation and its freeing with `live` others alive: of one size again and again; and of the size
/// of one of the others, which is freed for it. Both with what `allocator.finish()` waits for, if it has that.
template <class Allocator>
Sample pairs(Allocator& allocator, std::size_t live, std::size_t count) {
  const auto finish = [&] {
    if constexpr (requires { allocator.finish(); }) allocator.finish();
  };
  std::mt19937_64 random(7);
  std::vector<std::size_t> sizes(live);
  std::vector<typename Allocator::Allocation> others;
  others.reserve(live);
  for (std::size_t& size : sizes) {
    size = 512 * (1 + random() % 64);
    others.push_back(allocator.allocate(size));
  }
  constexpr std::size_t bytes = 16'384;
  allocator.free(allocator.allocate(bytes));
  finish();
  const auto start = std::chrono::steady_clock::now();
  for (std::size_t i = 0; i < count; ++i) allocator.free(allocator.allocate(bytes));
  finish();
  const auto middle = std::chrono::steady_clock::now();
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t chosen = random() % live;
    allocator.free(others[chosen]);
    others[chosen] = allocator.allocate(sizes[chosen]);
  }
  finish();
  const auto end = std::chrono::steady_clock::now();
  for (auto& other : others) allocator.free(other);
  finish();
  const auto per_pair = [count](auto time) {
    return std::chrono::duration<double, std::nano>(time).count() / static_cast<double>(count);
  };
  return {per_pair(middle - start), per_pair(end - middle)};
}

/// As above, with an allocator of its own.
template <class Allocator>
Sample pairs(std::size_t live, std::size_t count) {
  Allocator allocator;
  return pairs(allocator, live, count);
}

/// Bytes reserved at most divided by bytes in use at most, and nanoseconds per event.
template <class Pool>
Sample replay(const AllocationTrace& trace, Pool& pool) {
  std::vector<typename Pool::Allocation> alive(trace.allocations);
  std::vector<std::uint32_t> streams(trace.allocations);
  std::vector<bool> taken(trace.allocations);
  const auto start = std::chrono::steady_clock::now();
  for (const AllocationTrace::Event& event : trace.events) {
    if (event.bytes == 0) {
      pool.free(alive[event.allocation], streams[event.allocation]);
      taken[event.allocation] = false;
    } else {
      alive[event.allocation] = pool.allocate(event.bytes, event.stream);
      streams[event.allocation] = event.stream;
      taken[event.allocation] = true;
    }
  }
  const std::chrono::duration<double, std::nano> whole = std::chrono::steady_clock::now() - start;
  const MemoryUsage usage = pool.usage();
  for (std::size_t i = 0; i < alive.size(); ++i)
    if (taken[i]) pool.free(alive[i], streams[i]);
  return {static_cast<double>(usage.peak_bytes_reserved) / static_cast<double>(usage.peak_bytes_in_use),
          whole.count() / static_cast<double>(trace.events.size())};
}

/// The same in memory of this process, with a device that is always `lag` frees behind the program.
template <class Storage>
Sample replay(const AllocationTrace& trace, std::uint64_t lag) {
  BasicPoolUnderTest<Storage> pool(lag);
  return replay(trace, pool);
}

}  // namespace cox::perf
