#pragma once

#include <coxswain/runtime/handle/managed_memory.hpp>
#include <coxswain/runtime/handle/return_list.hpp>
#include <coxswain/runtime/memory/access_tracker.hpp>
#include <coxswain/runtime/memory/borrowed_memory.hpp>
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

/// Buffers whose last reference was dropped, on their way back to the device thread.
using ReturnedBuffers = detail::ReturnList<DeviceBuffer>;

/// The storage of one allocation. References to the allocation keep it alive. Queued work does not: its positions on
/// the streams are tracked instead (AccessTracker), so that the memory can be reused as soon as the order of the
/// streams allows, and not earlier (L11). Device thread only, unless stated otherwise.
class DeviceBuffer final : public MemoryResource {
 public:
  /// The pool that the memory of a buffer comes from. Borrowed: from no pool, see BorrowedMemory.
  enum class Home : std::uint8_t { Automatic, Persistent, Borrowed };

  explicit DeviceBuffer(std::shared_ptr<ReturnedBuffers> returned) noexcept : returned_(std::move(returned)) {}

  /// Called when the last reference to the allocation is dropped. Any thread.
  void release() noexcept override {
    if (home == Home::Borrowed) [[unlikely]]
      return release_borrowed();
    if (!returned_->push(*this)) drop();
  }
  [[nodiscard]] std::optional<MemoryFailure> failure() const override { return poison.failure(); }

  /// 0 if the buffer has no bytes.
  [[nodiscard]] MemoryAddress address() const noexcept { return allocation.address; }
  /// Bytes, as requested.
  [[nodiscard]] std::size_t size() const noexcept { return bytes; }

  /// Moves the memory to a new buffer, for another allocation: queued work may still refer to this object for the old
  /// allocation. This object has no memory afterwards. Throws std::bad_alloc; then nothing has changed.
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
  /// For a device that issues work before earlier work has completed: the last operation that made the contents depend
  /// on an in-flight collective, by its number in the device's log; 0: none.
  std::uint64_t depends_on = 0;
  const std::exception_ptr* marked_by = nullptr;  ///< used by the device's log
  Poison poison;  ///< of the current allocation; last, so that the members that every launch reads are adjacent
  std::shared_ptr<BorrowedMemory> borrowed;  ///< null unless the memory is borrowed

  /// Reference count of the object, not of its memory. The allocation holds one reference from the start; queued work
  /// holds the others (DeviceBufferReference). Any thread.
  void add_reference() noexcept { references_.fetch_add(1, std::memory_order_relaxed); }
  void drop() noexcept {
    if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }
  /// Whether no queued work refers to the object, so that it can be reused for another allocation.
  [[nodiscard]] bool is_reusable() const noexcept {
    return references_.load(std::memory_order_acquire) == 1;  // pairs with the release in drop
  }

 private:
  // The device thread is notified: the owner of the memory waits for it to be released.
  void release_borrowed() noexcept {
    const std::shared_ptr<PostQueue> posts = borrowed->posts();  // the buffer may be gone after push()
    if (!returned_->push(*this)) return drop();
    posts->notify();
  }

  std::atomic<std::uint32_t> references_{1};
  const std::shared_ptr<ReturnedBuffers> returned_;
};

/// Keeps the buffer object alive, but not its memory. Queued work needs the object to poison it on failure. By then the
/// allocation may have been released, and its memory may have been reused.
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

  /// Precondition: not moved from.
  [[nodiscard]] DeviceBuffer* operator->() const noexcept { return buffer_; }

 private:
  DeviceBuffer* buffer_;
};

}  // namespace cox
