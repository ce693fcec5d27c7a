#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <utility>

namespace cox {

/// Where host bytes are stored. A server selects the path of an upload by it. Pinned memory can be copied from directly
/// and concurrently with kernels; File and Device bytes are not in memory until the first access.
enum class AllocationProperty : std::uint8_t {
  Native,  ///< Pageable memory of this process.
  Pinned,  ///< Page-locked memory that a server allocated.
  File,    ///< A range of a file, read at the first access.
  Device,  ///< Memory of a device, copied to the host at the first access.
  Other,   ///< Memory of another library, with unknown properties.
};

[[nodiscard]] constexpr const char* to_string(AllocationProperty property) noexcept {
  constexpr std::array names{"native", "pinned", "file", "device", "other"};
  static_assert(names.size() == static_cast<std::size_t>(AllocationProperty::Other) + 1);
  return names[static_cast<std::size_t>(property)];
}

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

/// Lazy content, opened for reading. One thread at a time.
class ByteSource {
 public:
  ByteSource() = default;
  ByteSource(const ByteSource&) = delete;
  ByteSource& operator=(const ByteSource&) = delete;
  virtual ~ByteSource() = default;

  /// Fills `destination` with the bytes that start at `offset` in what was opened. Blocks. Throws IoError; then the
  /// content of `destination` is undefined. Precondition: offset + destination.size() is at most the opened size.
  virtual void read(std::size_t offset, std::span<std::byte> destination) = 0;
};

/// Bytes in a file or on a device, of which a LazyAllocation is a range. Any thread.
class LazyContent {
 public:
  virtual ~LazyContent() = default;

  /// Opens the `size` bytes that start at `offset`. The source may refer to this object. May block. Throws IoError.
  [[nodiscard]] virtual std::unique_ptr<ByteSource> open(std::size_t offset, std::size_t size) const = 0;
};

/// A range of lazy content, which is read into memory at the first access. Any thread.
class LazyAllocation final : public HostAllocation {
 public:
  LazyAllocation(AllocationProperty property, std::shared_ptr<const LazyContent> content, std::size_t offset,
                 std::size_t size) noexcept
      : HostAllocation(property, nullptr, size, true), content_(std::move(content)), offset_(offset) {}

  /// Returns the content in memory. The first call reads it; concurrent calls wait for the first one and share its
  /// result. Blocks. Throws IoError OutOfHostMemory and what the source throws; the next call then tries again. Never
  /// null, unless the size is 0.
  std::byte* load();
  /// Opens the content for reads that bypass load. This object must outlive the source. May block. Throws IoError.
  [[nodiscard]] std::unique_ptr<ByteSource> open() const { return content_->open(offset_, size()); }
  /// Returns a range of this allocation that is read separately. Throws std::bad_alloc only. Precondition: the range is
  /// within this allocation.
  [[nodiscard]] std::unique_ptr<LazyAllocation> window(std::size_t offset, std::size_t size) const {
    return std::make_unique<LazyAllocation>(property(), content_, offset_ + offset, size);
  }

 private:
  std::shared_ptr<const LazyContent> content_;
  std::size_t offset_;
  std::mutex mutex_;
  std::unique_ptr<HostAllocation> memory_;  // guarded by mutex_; never replaced once it is set
};

namespace detail {

/// Memory with its owner, which is destroyed with the allocation.
template <class Owner>
class OwnedAllocation final : public HostAllocation {
 public:
  /// `memory`: a span of std::byte, or of const std::byte if the memory is read-only.
  template <class Memory, class... Arguments>
  OwnedAllocation(AllocationProperty property, Memory memory, Arguments&&... owner) noexcept
      : HostAllocation(property, memory), owner_(std::forward<Arguments>(owner)...) {}

  /// Moves the owner out; this allocation must not be accessed afterwards.
  [[nodiscard]] Owner take() noexcept { return std::move(owner_); }

 private:
  Owner owner_;
};

/// The memory of heap_allocation starts at a multiple of this.
inline constexpr std::size_t heap_alignment = 64;

/// `size` bytes of pageable memory with undefined content. Throws IoError OutOfHostMemory.
[[nodiscard]] std::unique_ptr<HostAllocation> heap_allocation(std::size_t size);

}  // namespace detail

}  // namespace cox
