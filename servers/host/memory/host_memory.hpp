#pragma once

#include <coxswain/runtime/memory/device_memory.hpp>
#include <coxswain/runtime/memory/pinned_memory.hpp>
#include <coxswain/servers/host/memory/host_storage.hpp>
#include <coxswain/servers/host/stream/host_streams.hpp>

#include <cstddef>
#include <cstdint>

namespace cox::detail {

/// Bytes: of every allocation, and of the rows of optimised layouts; as on GPUs.
inline constexpr std::size_t host_memory_alignment = 512;
/// Bytes: of every staging buffer.
inline constexpr std::size_t host_pinned_alignment = 64;

/// The memory of a host device, and the memory that it would copy from and to directly.
using HostMemory = DeviceMemory<HostStorage, HostStreams>;
using HostPinnedMemory = PinnedMemory<HostStorage>;

/// Bytes.
[[nodiscard]] MemoryPoolOptions host_pool_options(std::size_t capacity, std::size_t alignment) noexcept;
/// Bytes that are mapped at once: a thousandth of the memory, so that small devices can be full to the last bytes and
/// large ones are mapped in few steps.
[[nodiscard]] std::size_t host_granularity(std::size_t capacity) noexcept;

[[nodiscard]] inline std::byte* host_pointer(MemoryAddress address) noexcept {
  return reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(address));
}

}  // namespace cox::detail
