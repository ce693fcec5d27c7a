#pragma once

#include <coxswain/runtime/handle/managed_memory.hpp>
#include <coxswain/runtime/handle/return_list.hpp>
#include <coxswain/runtime/memory/access_tracker.hpp>
#include <coxswain/runtime/memory/memory_pool.hpp>
#include <coxswain/runtime/memory/poison.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

namespace cox {

class DeviceBuffer;

/// Buffers that nobody refers to any more, on their way back to the device thread.
using ReturnedBuffers = detail::ReturnList<DeviceBuffer>;

/// The storage of one allocation. Held by the references to its memory; work that was queued with it is known by its
/// place on the streams instead (AccessTracker), so that the memory can be used again as soon as the order of the
/// streams allows, and not before (L11). Device thread only, unless said otherwise.
class DeviceBuffer final : public MemoryResource {
 public:
  /// Where buffers live: the pool that they are from.
  enum class Home : std::uint8_t { Automatic, Persistent };

  explicit DeviceBuffer(std::shared_ptr<ReturnedBuffers> returned) noexcept : returned_(std::move(returned)) {}

  /// Any thread: the last reference is gone.
  void release() noexcept override {
    if (!returned_->push(*this)) drop();
  }
  [[nodiscard]] std::optional<MemoryFailure> failure() const override { return poison.failure(); }

  /// 0 if there are no bytes.
  [[nodiscard]] MemoryAddress address() const noexcept { return allocation.address; }
  /// Bytes, as asked for.
  [[nodiscard]] std::size_t size() const noexcept { return bytes; }

  /// The same memory, for another allocation: queued work may refer to this object for the one that it was. This one
  /// has no memory afterwards. Throws std::bad_alloc; then nothing has changed.
  [[nodiscard]] DeviceBuffer* detach_allocation() {
    auto* const next = new DeviceBuffer(returned_);
    next->uses = std::move(uses);
    next->allocation = std::exchange(allocation, {});
    next->bytes = std::exchange(bytes, 0);
    next->home = home;
    return next;
  }

  AccessTracker uses;
  MemoryAllocation allocation;
  std::size_t bytes = 0;
  Home home = Home::Automatic;
  DeviceBuffer* next_returned = nullptr;
  /// Of a device that issues work before its predecessors have ended: the last operation that has made the contents
  /// depend on a collective under way, by its number in the device's log; 0: none.
  std::uint64_t depends_on = 0;
  bool is_marked = false;  ///< of that log
  Poison poison;           ///< of the allocation that it is now; last, so that what every launch looks at lies together

  /// References to the object, not to its memory: one of whoever holds the allocation, which is there from the start,
  /// and those of queued work (DeviceBufferReference). Any thread.
  void add_reference() noexcept { references_.fetch_add(1, std::memory_order_relaxed); }
  void drop() noexcept {
    if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }
  /// No queued work refers to the object, so that it can become another allocation.
  [[nodiscard]] bool is_reusable() const noexcept {
    return references_.load(std::memory_order_acquire) == 1;  // pairs with the release in drop
  }

 private:
  std::atomic<std::uint32_t> references_{1};
  const std::shared_ptr<ReturnedBuffers> returned_;
};

/// Keeps the object, not its memory: queued work marks it as poisoned when it fails. That may be after the allocation
/// has been dropped, and its memory has been given to another.
class DeviceBufferReference {
 public:
  explicit DeviceBufferReference(DeviceBuffer& buffer) noexcept : buffer_(&buffer) { buffer.add_reference(); }
  DeviceBufferReference(const DeviceBufferReference& other) noexcept : DeviceBufferReference(*other.buffer_) {}
  DeviceBufferReference(DeviceBufferReference&& other) noexcept : buffer_(std::exchange(other.buffer_, nullptr)) {}
  DeviceBufferReference& operator=(DeviceBufferReference other) noexcept {
    std::swap(buffer_, other.buffer_);
    return *this;
  }
  ~DeviceBufferReference() {
    if (buffer_ != nullptr) buffer_->drop();
  }

  /// Not of one that was moved from.
  [[nodiscard]] DeviceBuffer* operator->() const noexcept { return buffer_; }

 private:
  DeviceBuffer* buffer_;
};

}  // namespace cox
