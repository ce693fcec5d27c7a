#pragma once

#include <coxswain/runtime/memory/block_map.hpp>
#include <coxswain/runtime/memory/granularity.hpp>
#include <coxswain/runtime/memory/memory_block.hpp>
#include <coxswain/runtime/memory/memory_storage.hpp>
#include <coxswain/runtime/memory/reserved_bytes.hpp>
#include <coxswain/runtime/memory/stream_position.hpp>

#include <algorithm>
#include <cstddef>

namespace cox {

/// Takes a pool's memory from the storage in regions, and returns whole regions. Device thread only.
template <RegionStorage Storage>
class RegionBacking {
 public:
  RegionBacking(Storage& storage, BlockMap& blocks, ReservedBytes& reserved, std::size_t)
      : storage_(storage), blocks_(blocks), reserved_(reserved), granule_{storage.granularity()} {}
  RegionBacking(const RegionBacking&) = delete;
  RegionBacking& operator=(const RegionBacking&) = delete;

  /// Returns all regions to the storage. Precondition: no work uses the memory.
  ~RegionBacking() {
    blocks_.for_each([this](MemoryBlockId id, const MemoryBlock& first) {
      if (first.previous != 0) return;
      std::size_t bytes = 0;
      for (; id != 0; id = blocks_[id].next) bytes += blocks_[id].size;
      storage_.free(first.address, bytes);
    });
  }

  /// Makes `size` contiguous bytes free for `stream`. Returns false if not enough memory is available. Throws
  /// std::bad_alloc; then nothing has changed.
  bool grow(std::size_t size, StreamSlot stream, std::size_t) {
    blocks_.reserve(8);
    // Small allocations share regions, if the capacity has room for a region.
    std::size_t bytes = granule_.round_up(size < region_size() / 2 ? region_size() : size);
    if (!reserved_.has_room_for(bytes)) bytes = granule_.round_up(size);
    if (!reserved_.has_room_for(bytes)) return false;
    const MemoryAddress address = storage_.allocate(bytes);
    if (address == 0) return false;
    reserved_.add(bytes);
    blocks_.make_free(blocks_.add({address, bytes}), stream, 0);
    return true;
  }

  /// Returns regions that are free for all to the storage, large ones first, until `bytes` have been returned or none
  /// is left.
  void reclaim(std::size_t bytes) noexcept {
    std::size_t reclaimed = 0;
    blocks_.for_each_free(no_stream, [&](MemoryBlockId id) {
      if (reclaimed >= bytes) return false;
      const MemoryBlock& block = blocks_[id];
      if (block.previous != 0 || block.next != 0) return true;  // part of the region is in use
      reclaimed += block.size;
      storage_.free(block.address, block.size);
      reserved_.remove(block.size);
      blocks_.remove(id);
      return true;
    });
  }

  template <class Clock>
  void unmap_passed(const Clock&) noexcept {}  // nothing is moved

  void trim() noexcept {}

 private:
  // Bytes of regions for small allocations; the storage may define its own size.
  [[nodiscard]] static constexpr std::size_t region_size() noexcept {
    if constexpr (requires { Storage::region_size; }) {
      return Storage::region_size;
    } else {
      return std::size_t{32} << 20U;
    }
  }

  Storage& storage_;
  BlockMap& blocks_;
  ReservedBytes& reserved_;
  const Granularity granule_;
};

}  // namespace cox
