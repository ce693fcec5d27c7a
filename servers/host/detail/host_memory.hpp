#pragma once

#include <coxswain/runtime/access.hpp>
#include <coxswain/runtime/managed_memory.hpp>
#include <coxswain/runtime/memory/memory_pool.hpp>
#include <coxswain/runtime/memory_usage.hpp>
#include <coxswain/runtime/place.hpp>
#include <coxswain/runtime/small_vector.hpp>
#include <coxswain/servers/host/detail/host_storage.hpp>
#include <coxswain/servers/host/detail/timeline.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <source_location>

namespace cox::detail {

class HostBuffer;

/// The memory of one host device, and what its pool has been asked for. Any thread: buffers are freed wherever their
/// last reference is dropped. That happens after all work with them, so that the pool has no stream to wait for.
class HostMemory : public std::enable_shared_from_this<HostMemory> {
 public:
  /// Bytes; `alignment` of every buffer.
  HostMemory(std::size_t capacity, std::size_t alignment);
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;
  ~HostMemory() = default;

  /// Throws IoError BufferTooBig, OutOfMemory with the whole picture, or OutOfHostMemory when the process itself has no
  /// more.
  [[nodiscard]] std::shared_ptr<HostBuffer> allocate(std::size_t size, const Place& place, std::source_location site);
  [[nodiscard]] MemoryUsage usage() const;
  [[nodiscard]] MemoryReport report() const;
  /// Gives what is not in use back to the system.
  void cleanup();
  /// Takes the storage of all buffers alive: they are of no use afterwards, and their owners may keep them.
  void release_all() noexcept;

 private:
  friend class HostBuffer;

  /// Nothing is freed here before its work is done.
  struct NoClock {
    [[nodiscard]] static std::uint64_t completed(StreamSlot) noexcept { return ~std::uint64_t{0}; }
  };

  void release(HostBuffer& buffer) noexcept;
  /// Under the mutex.
  void take_storage(HostBuffer& buffer) noexcept;

  const std::size_t capacity_;
  HostStorage storage_;
  NoClock clock_;
  mutable std::mutex mutex_;
  MemoryPool<HostStorage, NoClock> pool_;  // guarded by mutex_
  HostBuffer* first_ = nullptr;            // guarded by mutex_: the buffers that have storage, doubly linked
};

/// The storage of one allocation. Held by the memory's references and by the stream work that was given it; the last of
/// them frees it (L11).
class HostBuffer final : public MemoryResource {
 public:
  HostBuffer(std::shared_ptr<HostMemory> memory, std::size_t size) noexcept : memory_(std::move(memory)), size_(size) {}
  ~HostBuffer() override { memory_->release(*this); }

  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

  /// Device thread only. Work with the event `use` is about to be queued that reads or writes the buffer: adds to
  /// `waits` the uses before it, on other streams, that must be over first. A reader waits for the last writer; a
  /// writer also for all readers since.
  void order_use(Access access, const HostEvent& use, HostEvents& waits);

 private:
  friend class HostMemory;

  std::shared_ptr<HostMemory> memory_;
  std::size_t size_;
  std::byte* data_ = nullptr;
  MemoryAllocation allocation_;     // of the memory's pool, if there is data
  HostBuffer* previous_ = nullptr;  // guarded by the memory's mutex
  HostBuffer* next_ = nullptr;      // guarded by the memory's mutex
  HostEvent writer_;                // device thread only
  HostEvents readers_;              // device thread only: since the last writer, the latest of each stream
};

}  // namespace cox::detail
