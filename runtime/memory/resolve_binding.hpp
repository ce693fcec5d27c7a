#pragma once

#include <coxswain/runtime/access.hpp>
#include <coxswain/runtime/binding.hpp>
#include <coxswain/runtime/caller.hpp>
#include <coxswain/runtime/managed_memory.hpp>
#include <coxswain/runtime/memory/device_buffer.hpp>
#include <coxswain/runtime/small_vector.hpp>

#include <string>

namespace cox {

/// A buffer that work about to be queued touches. Device thread only, during one call of the server.
struct BufferUse {
  DeviceBuffer* buffer = nullptr;
  Access access = Access::Write;
  const ManagedMemory* memory = nullptr;  ///< that the buffer belongs to
};
using BufferUses = SmallVector<BufferUse, 8>;

/// The buffer behind a binding, if all is well with it: for servers whose resources are DeviceBuffers. Device thread of
/// `owner` only. Throws IoError: NotFound (empty handle, never initialised), WrongDevice, StaleHandle, AllocationFailed
/// with its cause (L12), OutOfBounds.
[[nodiscard]] DeviceBuffer& resolve_binding(const Binding& binding, const MemoryOwner& owner, const Caller& caller);

/// "memory 12 was used on DeviceId(type=0, index=1), stream 7": how errors about a binding begin. Not of an empty one.
[[nodiscard]] std::string describe_use(const Binding& binding, const MemoryOwner& owner, const Caller& caller);

}  // namespace cox
