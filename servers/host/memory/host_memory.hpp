#pragma once

#include <coxswain/runtime/memory/device_memory.hpp>
#include <coxswain/runtime/memory/pinned_memory.hpp>
#include <coxswain/servers/host/memory/host_storage.hpp>
#include <coxswain/servers/host/stream/host_streams.hpp>

#include <cstddef>
#include <cstdint>

namespace cox::detail {

/// Alignment in bytes of every allocation, and of the rows of optimised layouts; the same as on GPUs.
inline constexpr std::size_t host_memory_alignment = 512;
/// Alignment in bytes of every staging buffer.
inline constexpr std::size_t host_pinned_alignment = 64;

/// The memory of a host device, and its staging memory: the equivalent of page-locked memory on a GPU.
using HostMemory = DeviceMemory<HostStorage, HostStreams>;
using HostPinnedMemory = PinnedMemory<HostStorage>;

/// Options of a pool with this capacity and alignment, both in bytes.
[[nodiscard]] MemoryPoolOptions host_pool_options(std::size_t capacity, std::size_t alignment) noexcept;
/// Bytes that are mapped in one step: about 1/1024 of the capacity, so that small devices can use nearly all of their
/// memory and large ones are mapped in few steps.
[[nodiscard]] std::size_t host_granularity(std::size_t capacity) noexcept;

[[nodiscard]] inline std::byte* host_pointer(MemoryAddress address) noexcept {
  return reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(address));
}

}  // namespace cox::detail
