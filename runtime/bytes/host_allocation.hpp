#pragma once

#include <coxswain/runtime/bytes/allocation_property.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

namespace cox {

/// Host memory that Bytes stand on. A server that gives out memory of its own (pinned pages, say) derives a class from
/// this whose destructor takes the memory back, and hands it to Bytes::from_allocation. Several Bytes may stand on one
/// allocation; whoever drops the last of them destroys it, once, on that thread: the destructor must be ready for any
/// thread, must not throw and should not block.
class HostAllocation {
 public:
  HostAllocation(const HostAllocation&) = delete;
  HostAllocation& operator=(const HostAllocation&) = delete;
  virtual ~HostAllocation() = default;

  [[nodiscard]] AllocationProperty property() const noexcept { return property_; }
  /// In bytes.
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  /// False for memory that must stay as it is: writing to such bytes always copies them first.
  [[nodiscard]] bool is_writable() const noexcept { return writable_; }
  /// The first byte; null while the content is not in memory. Once set it stays. Any thread.
  [[nodiscard]] std::byte* data() const noexcept {
    // Acquire pairs with the release in publish: what was read into the memory is visible.
    return data_.load(std::memory_order_acquire);
  }

 protected:
  /// Memory that is there, and stays for the life of this object. Its start may be null only if it has no size.
  HostAllocation(AllocationProperty property, std::span<std::byte> memory) noexcept
      : HostAllocation(property, memory.data(), memory.size(), true) {}
  /// As above, for memory that must not be written to.
  HostAllocation(AllocationProperty property, std::span<const std::byte> memory) noexcept
      : HostAllocation(property, const_cast<std::byte*>(memory.data()), memory.size(), false) {}

 private:
  friend class Bytes;
  friend class LazyAllocation;

  HostAllocation(AllocationProperty property, std::byte* data, std::size_t size, bool writable) noexcept
      : data_(data), size_(size), property_(property), writable_(writable) {}

  /// The content is in memory from now on, at `data`.
  void publish(std::byte* data) noexcept { data_.store(data, std::memory_order_release); }

  void retain() noexcept { references_.fetch_add(1, std::memory_order_relaxed); }
  /// True for the last reference; who held it must then destroy the allocation.
  [[nodiscard]] bool drop() noexcept {
    // Release: what this owner did with the memory is visible to whoever destroys or overwrites it; acquire, in the one
    // that destroys.
    return references_.fetch_sub(1, std::memory_order_acq_rel) == 1;
  }
  [[nodiscard]] bool has_one_owner() const noexcept {
    // Acquire pairs with the release in drop: the last other owner has finished reading.
    return references_.load(std::memory_order_acquire) == 1;
  }

  std::atomic<std::byte*> data_;
  std::size_t size_;
  std::atomic<std::uint32_t> references_{1};
  AllocationProperty property_;
  bool writable_;
};

}  // namespace cox
