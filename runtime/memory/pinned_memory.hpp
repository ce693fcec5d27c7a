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

/// Host memory that a device copies from and to directly, given out as Bytes with the property Pinned. Dropping the
/// last of them gives it back, on whichever thread: work that was given such bytes holds them until it is done, so that
/// there is no stream to wait for. Lives, with what it has from the system, until the last bytes are gone. Any thread.
/// Where giving memory back waits for the device (the storage has a `free_waits`), only cleanup() does it.
template <MemoryStorage Storage>
class PinnedMemory : public std::enable_shared_from_this<PinnedMemory<Storage>> {
 public:
  template <class... A>
  explicit PinnedMemory(const MemoryPoolOptions& options, const A&... storage)
      : storage_(storage...), pool_(storage_, clock_, options) {}
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;

  /// `size` bytes whose content is not defined. Nothing: there is no room; report() says why. Throws std::bad_alloc.
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
  /// Gives what nobody has back to the system.
  void cleanup() {
    const std::lock_guard lock(mutex_);
    pool_.cleanup();
  }

 private:
  /// Memory of one stream has no clock to look at: nothing is freed before its work is done.
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
    pool_.free(allocation, {});  // of no stream: needs no memory of its own
  }

  Storage storage_;
  NoClock clock_;
  mutable std::mutex mutex_;
  MemoryPool<Storage, NoClock> pool_;  // guarded by mutex_
};

}  // namespace cox
