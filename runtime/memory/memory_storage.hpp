#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>

namespace cox {

/// An address in the address space of a device.
using MemoryAddress = std::uint64_t;

/// Storage that maps memory at addresses, like the virtual memory management of a GPU. All addresses and sizes are
/// multiples of granularity(). Device thread only.
///
/// - reserve(bytes): reserves addresses without memory. Throws std::bad_alloc if there are none.
/// - release(address, bytes): releases such a range. Nothing in it may be mapped.
/// - map(address, bytes) -> bool: maps memory to the whole range. Returns false, and maps nothing, if there is not
///   enough memory.
/// - unmap(address, bytes): unmaps the range. The content is lost; no work may still use it.
/// - trim(): returns memory that is kept for the next map() to the device.
template <class S>
concept MappingStorage = requires(S& storage, const S& constant, MemoryAddress address, std::size_t bytes) {
  { constant.granularity() } noexcept -> std::same_as<std::size_t>;
  { storage.reserve(bytes) } -> std::same_as<MemoryAddress>;
  { storage.release(address, bytes) } noexcept -> std::same_as<void>;
  { storage.map(address, bytes) } noexcept -> std::same_as<bool>;
  { storage.unmap(address, bytes) } noexcept -> std::same_as<void>;
  { storage.trim() } noexcept -> std::same_as<void>;
};

/// Storage that can map one piece of memory at several addresses.
///
/// - alias(from, to, bytes) -> bool: maps the memory at `from` also at `to`. unmap() removes one mapping; unmapping the
///   last one returns the memory to the device. Returns false, and changes nothing, if it is not possible now.
template <class S>
concept AliasingStorage = MappingStorage<S> && requires(S& storage, MemoryAddress address, std::size_t bytes) {
  { storage.alias(address, address, bytes) } noexcept -> std::same_as<bool>;
};

/// Storage without mapping. Its memory comes in regions, which can only be freed as a whole.
///
/// - allocate(bytes) -> address, or 0 if there is not enough memory. `bytes` is a multiple of granularity().
/// - free(address, bytes): frees a region that allocate() has returned.
template <class S>
concept RegionStorage =
    !MappingStorage<S> && requires(S& storage, const S& constant, MemoryAddress address, std::size_t bytes) {
      { constant.granularity() } noexcept -> std::same_as<std::size_t>;
      { storage.allocate(bytes) } noexcept -> std::same_as<MemoryAddress>;
      { storage.free(address, bytes) } noexcept -> std::same_as<void>;
    };

/// The source of a MemoryPool's memory.
template <class S>
concept MemoryStorage = MappingStorage<S> || RegionStorage<S>;

}  // namespace cox
