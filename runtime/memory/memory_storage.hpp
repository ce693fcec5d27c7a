#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>

namespace cox {

/// A place in a device's address space.
using MemoryAddress = std::uint64_t;

/// Memory that can be put behind addresses and taken from behind them, as a GPU's virtual memory management does. All
/// addresses and sizes are multiples of granularity(). Device thread only.
///
/// - reserve(bytes): addresses with nothing behind them. Throws std::bad_alloc if there are none.
/// - release(address, bytes): gives such a range back; nothing of it is mapped.
/// - map(address, bytes) -> bool: puts memory behind the range, all of it or none. False: there is not so much.
/// - unmap(address, bytes): takes it away again; the content is lost, and no work may still touch it.
/// - trim(): gives memory that is kept for the next map() back to the device.
template <class S>
concept MappingStorage = requires(S& storage, const S& constant, MemoryAddress address, std::size_t bytes) {
  { constant.granularity() } noexcept -> std::same_as<std::size_t>;
  { storage.reserve(bytes) } -> std::same_as<MemoryAddress>;
  { storage.release(address, bytes) } noexcept -> std::same_as<void>;
  { storage.map(address, bytes) } noexcept -> std::same_as<bool>;
  { storage.unmap(address, bytes) } noexcept -> std::same_as<void>;
  { storage.trim() } noexcept -> std::same_as<void>;
};

/// Storage that can have one piece of memory behind several addresses.
///
/// - alias(from, to, bytes) -> bool: puts the memory behind `from` behind `to` as well; unmap() takes it from one
///   of the two, and gives it back with the last. False: it cannot be done now, and nothing has changed.
template <class S>
concept AliasingStorage = MappingStorage<S> && requires(S& storage, MemoryAddress address, std::size_t bytes) {
  { storage.alias(address, address, bytes) } noexcept -> std::same_as<bool>;
};

/// Memory that comes in regions which stay as they are until they are given back whole: where there is no mapping.
///
/// - allocate(bytes) -> address, or 0: there is not so much. `bytes` is a multiple of granularity().
/// - free(address, bytes): a region as allocate() returned it.
template <class S>
concept RegionStorage =
    !MappingStorage<S> && requires(S& storage, const S& constant, MemoryAddress address, std::size_t bytes) {
      { constant.granularity() } noexcept -> std::same_as<std::size_t>;
      { storage.allocate(bytes) } noexcept -> std::same_as<MemoryAddress>;
      { storage.free(address, bytes) } noexcept -> std::same_as<void>;
    };

/// Where a MemoryPool's bytes come from.
template <class S>
concept MemoryStorage = MappingStorage<S> || RegionStorage<S>;

}  // namespace cox
