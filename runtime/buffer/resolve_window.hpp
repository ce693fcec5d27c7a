#pragma once

#include <coxswain/runtime/base/access.hpp>
#include <coxswain/runtime/base/caller.hpp>
#include <coxswain/runtime/base/small_vector.hpp>
#include <coxswain/runtime/handle/binding.hpp>
#include <coxswain/runtime/handle/managed_memory.hpp>
#include <coxswain/runtime/launch/kernel_buffers.hpp>
#include <coxswain/runtime/memory/device_buffer.hpp>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <source_location>
#include <string>

namespace cox {

/// A buffer use of an operation that is about to be queued. Device thread only, during one call of the server.
struct BufferUse {
  DeviceBuffer* buffer = nullptr;
  Access access = Access::Write;
  MemoryView memory;  ///< allocation that the buffer belongs to; empty: none
  bool whole = true;  ///< all of the buffer, not only a window
};
using BufferUses = SmallVector<BufferUse, 8>;

/// The window of an allocation that is passed to a server, as a Binding or as a KernelBuffer. Does not keep the memory
/// alive.
struct MemoryWindow {
  MemoryWindow(const Binding& binding) noexcept  // NOLINT(google-explicit-constructor)
      : memory(binding.memory), offset_start(binding.offset_start), size_in_used(binding.size_in_used()) {}
  MemoryWindow(const KernelBuffer& buffer) noexcept  // NOLINT(google-explicit-constructor)
      : memory(buffer.memory), offset_start(buffer.offset_start), size_in_used(buffer.size_in_used) {}

  MemoryView memory;
  std::size_t offset_start;                 ///< bytes left out at the front
  std::optional<std::size_t> size_in_used;  ///< bytes of the window; std::nullopt: to the end of the buffer
};

/// A buffer, and the size of the window in it.
struct BufferWindow {
  DeviceBuffer& buffer;
  std::size_t size;  ///< bytes of the window
};

/// Throws the IoError that resolve_window documents, for a window that it cannot resolve.
[[noreturn]] void refuse_window(const MemoryWindow& window, const MemoryOwner& owner, const Caller& caller);

/// Resolves a window to its buffer, for servers whose resources are DeviceBuffers. Device thread of `owner` only.
/// Throws IoError: NotFound (empty handle, never initialised), WrongDevice, StaleHandle, AllocationFailed with its
/// cause (L12), OutOfBounds.
[[nodiscard]] inline BufferWindow resolve_window(const MemoryWindow& window, const MemoryOwner& owner,
                                                 const Caller& caller) {
  if (window.memory && window.memory.owner() == owner) [[likely]] {
    const MemoryState& state = window.memory.state();
    if (state.failure == nullptr && state.resource != nullptr) [[likely]] {
      auto& buffer = static_cast<DeviceBuffer&>(*state.resource);
      const std::size_t rest = buffer.size() - std::min(window.offset_start, buffer.size());
      const std::size_t size = window.size_in_used.value_or(rest);
      if (window.offset_start <= buffer.size() && size <= rest) [[likely]]
        return {buffer, size};
    }
  }
  refuse_window(window, owner, caller);
}

/// Throws ServerError Validation if the use writes kept memory outside of an update.
inline void require_update(const BufferUse& use, std::source_location site) {
  if (use.buffer->home == DeviceBuffer::Home::Borrowed && writes(use.access)) [[unlikely]]
    use.buffer->borrowed->require_update(site);
}

/// "memory 12 was used on host:1, stream 7": the beginning of error messages about a window. Precondition: the window
/// has memory.
[[nodiscard]] std::string describe_use(const MemoryWindow& window, const MemoryOwner& owner, const Caller& caller);

}  // namespace cox
