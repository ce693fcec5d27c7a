#pragma once

#include <coxswain/runtime/access.hpp>
#include <coxswain/runtime/binding.hpp>
#include <coxswain/runtime/caller.hpp>
#include <coxswain/runtime/kernel_buffer.hpp>
#include <coxswain/runtime/managed_memory.hpp>
#include <coxswain/runtime/memory/device_buffer.hpp>
#include <coxswain/runtime/small_vector.hpp>

#include <cstddef>
#include <string>

namespace cox {

/// A buffer that work about to be queued touches. Device thread only, during one call of the server.
struct BufferUse {
  DeviceBuffer* buffer = nullptr;
  Access access = Access::Write;
  const ManagedMemory* memory = nullptr;  ///< that the buffer belongs to
};
using BufferUses = SmallVector<BufferUse, 8>;

/// The window that a server is given, in whichever form it travels. Refers to that.
struct MemoryWindow {
  MemoryWindow(const Binding& binding) noexcept  // NOLINT(google-explicit-constructor)
      : memory(binding.memory), offset_start(binding.offset_start), size_in_used(binding.size_in_used()) {}
  MemoryWindow(const KernelBuffer& buffer) noexcept  // NOLINT(google-explicit-constructor)
      : memory(buffer.memory()), offset_start(buffer.offset_start()), size_in_used(buffer.size_in_used()) {}

  const ManagedMemory& memory;
  std::size_t offset_start;  ///< bytes left out at the front
  std::size_t size_in_used;  ///< bytes of the window
};

/// The buffer behind a window, if all is well with it: for servers whose resources are DeviceBuffers. Device thread of
/// `owner` only. Throws IoError: NotFound (empty handle, never initialised), WrongDevice, StaleHandle, AllocationFailed
/// with its cause (L12), OutOfBounds.
[[nodiscard]] DeviceBuffer& resolve_window(const MemoryWindow& window, const MemoryOwner& owner, const Caller& caller);

/// "memory 12 was used on DeviceId(type=0, index=1), stream 7": how errors about a window begin. Not of an empty one.
[[nodiscard]] std::string describe_use(const MemoryWindow& window, const MemoryOwner& owner, const Caller& caller);

}  // namespace cox
