#pragma once

#include <coxswain/runtime/bytes/allocation_property.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

namespace cox {

/// The host memory of one or more Bytes. A server that provides memory of its own (for example page-locked memory)
/// derives a class from this one, whose destructor returns the memory to the server, and passes an object of it to
/// Bytes::from_allocation. Several Bytes may share one allocation. It is destroyed once, together with the last of them
/// and on the same thread: the destructor may run on any thread, must not throw and should not block.
class HostAllocation {
 public:
  HostAllocation(const HostAllocation&) = delete;
  HostAllocation& operator=(const HostAllocation&) = delete;
  virtual ~HostAllocation() = default;

  [[nodiscard]] AllocationProperty property() const noexcept { return property_; }
  /// In bytes.
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  /// False for read-only memory: a write to such bytes always copies them first.
  [[nodiscard]] bool is_writable() const noexcept { return writable_; }
  /// The first byte; null while the content is not in memory. Once set, it does not change. Any thread.
  [[nodiscard]] std::byte* data() const noexcept {
    // Acquire pairs with the release in publish: the content that was read into the memory is visible.
    return data_.load(std::memory_order_acquire);
  }

 protected:
  /// Memory with content, valid for the lifetime of this object. Its address may be null only if its size is 0.
  HostAllocation(AllocationProperty property, std::span<std::byte> memory) noexcept
      : HostAllocation(property, memory.data(), memory.size(), true) {}
  /// Read-only memory with content, valid for the lifetime of this object. Its address may be null only if its size is
  /// 0.
  HostAllocation(AllocationProperty property, std::span<const std::byte> memory) noexcept
      : HostAllocation(property, const_cast<std::byte*>(memory.data()), memory.size(), false) {}

 private:
  friend class Bytes;
  friend class LazyAllocation;

  HostAllocation(AllocationProperty property, std::byte* data, std::size_t size, bool writable) noexcept
      : data_(data), size_(size), property_(property), writable_(writable) {}

  /// Sets the address of the content, which is in memory from now on. The release pairs with the acquire in data().
  void publish(std::byte* data) noexcept { data_.store(data, std::memory_order_release); }

  void retain() noexcept { references_.fetch_add(1, std::memory_order_relaxed); }
  /// Returns true for the last reference; the caller must then destroy the allocation.
  [[nodiscard]] bool drop() noexcept {
    // Release: the accesses of this owner are visible to the thread that destroys or overwrites the memory. It pairs
    // with the acquire of the last drop, whose caller destroys the memory, and with the acquire in has_one_owner.
    return references_.fetch_sub(1, std::memory_order_acq_rel) == 1;
  }
  [[nodiscard]] bool has_one_owner() const noexcept {
    // Acquire pairs with the release in drop: all former owners have finished reading.
    return references_.load(std::memory_order_acquire) == 1;
  }

  std::atomic<std::byte*> data_;
  std::size_t size_;
  std::atomic<std::uint32_t> references_{1};
  AllocationProperty property_;
  bool writable_;
};

}  // namespace cox
