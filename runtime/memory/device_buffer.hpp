#pragma once

#include <coxswain/runtime/handle/managed_memory.hpp>
#include <coxswain/runtime/handle/return_list.hpp>
#include <coxswain/runtime/memory/access_tracker.hpp>
#include <coxswain/runtime/memory/memory_pool.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
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
    if (!returned_->push(*this)) delete this;
  }

  /// 0 if there are no bytes.
  [[nodiscard]] MemoryAddress address() const noexcept { return allocation.address; }
  /// Bytes, as asked for.
  [[nodiscard]] std::size_t size() const noexcept { return bytes; }

  AccessTracker uses;
  MemoryAllocation allocation;
  std::size_t bytes = 0;
  Home home = Home::Automatic;
  DeviceBuffer* next_returned = nullptr;

 private:
  const std::shared_ptr<ReturnedBuffers> returned_;
};

}  // namespace cox
