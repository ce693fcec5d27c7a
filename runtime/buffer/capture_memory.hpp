#pragma once

#include <coxswain/runtime/handle/managed_memory.hpp>
#include <coxswain/runtime/memory/device_buffer.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>

namespace cox {

/// The memory that the rehearsal of a capture has used. It is kept until the capture ends. Allocations of the capture
/// take the part of it that has no other references. So the capture finds as much memory as the rehearsal needed, even
/// if other streams allocate at the same time. Device thread only.
class CaptureMemory {
 public:
  using Buffer = std::unique_ptr<MemoryResource, ReleaseMemoryResource>;

  /// Throws std::bad_alloc.
  void keep(const ManagedMemory& memory) { memory_.try_emplace(memory.id(), memory); }

  /// Removes and returns a buffer of exactly `size` bytes that has no other references; null if there is none. Throws
  /// std::bad_alloc.
  [[nodiscard]] Buffer take(std::size_t size) {
    const auto found = std::ranges::find_if(memory_, [size](const auto& kept) {
      const auto* const buffer = static_cast<const DeviceBuffer*>(kept.second.state().resource.get());
      return buffer != nullptr && buffer->home != DeviceBuffer::Home::Borrowed && buffer->size() == size &&
             kept.second.is_last();
    });
    if (found == memory_.end()) return nullptr;
    Buffer taken(static_cast<DeviceBuffer&>(*found->second.state().resource).detach_allocation());
    memory_.erase(found);
    return taken;
  }

  void clear() noexcept { memory_.clear(); }

 private:
  std::map<std::uint64_t, ManagedMemory> memory_;  // by id: each allocation once, oldest first
};

}  // namespace cox
