#pragma once

#include <coxswain/runtime/bytes/bytes.hpp>
#include <coxswain/runtime/bytes/host_allocation.hpp>
#include <coxswain/runtime/handle/memory_usage.hpp>
#include <coxswain/runtime/memory/memory_pool.hpp>
#include <coxswain/runtime/memory/memory_report.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>

namespace cox {

/// Page-locked host memory, which a device copies from and to directly, as Bytes with the property Pinned. Memory
/// returns to the pool when the last Bytes that refer to it are destroyed, on any thread. Queued work keeps its Bytes
/// until it has completed, so no stream must be waited for. The object and its system memory stay alive until the last
/// Bytes are destroyed. Any thread. If returning memory to the storage waits for the device (`Storage::free_waits`),
/// only cleanup() does it.
template <MemoryStorage Storage>
class PinnedMemory : public std::enable_shared_from_this<PinnedMemory<Storage>> {
 public:
  template <class... A>
  explicit PinnedMemory(const MemoryPoolOptions& options, const A&... storage)
      : storage_(storage...), pool_(storage_, clock_, options) {}
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;

  /// Allocates `size` bytes, which are not initialised. Returns std::nullopt if there is no room; report() shows why.
  /// Throws std::bad_alloc.
  [[nodiscard]] std::optional<Bytes> allocate(std::size_t size, MemoryLabel label) {
    if (size == 0) return Bytes();
    const std::lock_guard lock(mutex_);
    auto found = pool_.allocate(size, no_stream, label);
    if constexpr (!requires { Storage::free_waits; }) {
      if (!found) {
        pool_.cleanup();
        found = pool_.allocate(size, no_stream, label);
      }
    }
    if (!found) return std::nullopt;
    try {
      return Bytes::from_allocation(std::make_unique<Allocation>(this->shared_from_this(), *found, size));
    } catch (...) {
      pool_.free(*found, {});
      throw;
    }
  }

  [[nodiscard]] MemoryUsage usage() const {
    const std::lock_guard lock(mutex_);
    return pool_.usage();
  }
  [[nodiscard]] MemoryReport report() const {
    const std::lock_guard lock(mutex_);
    return pool_.report();
  }
  /// Returns unused memory to the system.
  void cleanup() {
    const std::lock_guard lock(mutex_);
    pool_.cleanup();
  }

 private:
  /// A clock that reports every position as reached: memory is freed only after its work has completed.
  struct NoClock {
    [[nodiscard]] static std::uint64_t completed(StreamSlot) noexcept { return ~std::uint64_t{0}; }
  };

  class Allocation final : public HostAllocation {
   public:
    Allocation(std::shared_ptr<PinnedMemory> memory, const MemoryAllocation& allocation, std::size_t size) noexcept
        : HostAllocation(AllocationProperty::Pinned,
                         std::span<std::byte>(
                             reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(allocation.address)), size)),
          memory_(std::move(memory)),
          allocation_(allocation) {}
    ~Allocation() override { memory_->free(allocation_); }

   private:
    std::shared_ptr<PinnedMemory> memory_;
    MemoryAllocation allocation_;
  };

  void free(const MemoryAllocation& allocation) noexcept {
    const std::lock_guard lock(mutex_);
    pool_.free(allocation, {});  // without pending uses, this allocates nothing
  }

  Storage storage_;
  NoClock clock_;
  mutable std::mutex mutex_;
  MemoryPool<Storage, NoClock> pool_;  // guarded by mutex_
};

}  // namespace cox
