#pragma once

#include <coxswain/runtime/memory/block_map.hpp>
#include <coxswain/runtime/memory/granularity.hpp>
#include <coxswain/runtime/memory/memory_block.hpp>
#include <coxswain/runtime/memory/memory_storage.hpp>
#include <coxswain/runtime/memory/piece_map.hpp>
#include <coxswain/runtime/memory/reserved_bytes.hpp>
#include <coxswain/runtime/memory/stream_position.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <new>
#include <vector>

namespace cox {

/// Storage whose memory comes in pieces of one or several granules. A piece can only be unmapped as a whole.
///
/// - last_pieces(range, most, excess): like PieceMap::last_whole, in addresses and bytes.
template <class S>
concept PieceStorage = MappingStorage<S> && requires(const S& storage, const MemoryRange& range, std::size_t most) {
  { storage.last_pieces(range, most, PieceMap::Excess::Allowed) } noexcept -> std::same_as<MemoryRange>;
};

/// Maps and unmaps the memory of a pool in one large range of addresses. Memory beyond the pool's limit is moved
/// instead of mapped: granules that are free for the requesting stream, but still used by its queued work, are also
/// mapped at the new addresses. The old addresses are unmapped when that work has completed. Device thread only.
template <MappingStorage Storage>
class MappedBacking {
 public:
  /// `address_space`: bytes of the address range, which the first call of grow() reserves.
  MappedBacking(Storage& storage, BlockMap& blocks, ReservedBytes& reserved, std::size_t address_space)
      : storage_(storage),
        blocks_(blocks),
        reserved_(reserved),
        granule_{storage.granularity()},
        address_space_(granule_.round_up(address_space)) {}
  MappedBacking(const MappedBacking&) = delete;
  MappedBacking& operator=(const MappedBacking&) = delete;

  /// Returns all memory and addresses to the storage. Precondition: no work uses the memory.
  ~MappedBacking() {
    for (MemoryBlockId id = first_; id != 0;) {  // one unmap for each run of blocks that have memory
      const MemoryAddress begin = blocks_[id].address;
      std::size_t bytes = 0;
      for (; id != 0 && blocks_[id].state != MemoryBlock::State::Unmapped; id = blocks_[id].next)
        bytes += blocks_[id].size;
      if (bytes != 0) storage_.unmap(begin, bytes);
      if (id != 0) id = blocks_[id].next;
    }
    if (arena_ != 0) storage_.release(arena_, address_space_);
  }

  /// Makes `size` contiguous bytes free for `stream`. Memory that would raise the reserved bytes above `limit` is moved
  /// where possible instead of mapped. Returns false if not enough memory is available; some memory may have been moved
  /// then. Throws std::bad_alloc; then nothing has changed.
  bool grow(std::size_t size, StreamSlot stream, std::size_t limit) {
    if (arena_ == 0) reserve_arena();
    blocks_.reserve(8);
    const MemoryBlockId unmapped = blocks_.find_unmapped(granule_.round_up(size));
    if (unmapped == 0) return false;
    // A free block that ends where the new memory begins counts as a part of it.
    const MemoryBlockId before = blocks_[unmapped].previous;
    const bool joins = blocks_.is_free_of(before, stream) || blocks_.is_free_of(before, no_stream);
    const std::size_t there = joins ? std::min(blocks_[before].size, size - 1) : 0;
    const std::size_t missing = granule_.round_up(size - there);
    const MemoryAddress address = blocks_[unmapped].address;
    Moved moved;
    if (AliasingStorage<Storage> && stream != no_stream && reserved_.now + missing > limit) {
      const std::size_t excess = std::min(reserved_.now + missing - limit, missing);
      moved = remap_own(stream, before, address, granule_.round_up(excess));
    }
    const bool enough = map({address + moved.bytes, missing - moved.bytes});
    const std::size_t backed = enough ? missing : moved.bytes;
    if (backed == 0) return false;
    blocks_.make_free(blocks_.split_out(unmapped, {address, backed}), stream, moved.position);
    if (joins && blocks_.is_free_of(before, no_stream)) blocks_.relist(before, stream);
    return enough;
  }

  /// Returns memory that is free for all to the storage, from large blocks first, until `bytes` have been returned or
  /// none is left. May return more, because granules and pieces are unmapped as a whole.
  void reclaim(std::size_t bytes) noexcept {
    std::size_t reclaimed = 0;
    blocks_.for_each_free(no_stream, [&](MemoryBlockId id) {
      if (reclaimed >= bytes) return false;
      reclaimed += unmap_free(id, bytes - reclaimed);
      return true;
    });
  }

  /// Unmaps the old addresses of moved memory when the stream has reached their positions, according to
  /// `clock.completed(stream)`.
  template <class Clock>
  void unmap_passed(const Clock& clock) noexcept {
    std::erase_if(remapped_, [&](MemoryBlockId id) {
      const bool passed = clock.completed(blocks_[id].owner) >= blocks_[id].position;
      if (passed) {
        storage_.unmap(blocks_[id].address, blocks_[id].size);
        blocks_.make_unmapped(id);
      }
      return passed;
    });
  }

  void trim() noexcept { storage_.trim(); }

 private:
  struct Moved {
    std::size_t bytes = 0;
    std::uint64_t position = 0;  // until then, work may use the memory at its old addresses
  };

  // split_out() uses two records. Listing new memory and allocating it, which may follow, use one each.
  static constexpr std::size_t records_of_a_cut = 4;

  // Maps up to `bytes` of memory that is free for `stream` also at the addresses from `to` on. The work of a stream
  // runs in order, so the memory is no longer used at the old addresses when it is used at the new ones. Skips the
  // block `except`.
  Moved remap_own(StreamSlot stream, MemoryBlockId except, MemoryAddress to, std::size_t bytes) noexcept {
    Moved moved;
    if constexpr (AliasingStorage<Storage>) {
      blocks_.for_each_free(stream, [&](MemoryBlockId id) {
        if (id == except) return true;
        const MemoryRange part = granules_of(id, bytes - moved.bytes, PieceMap::Excess::Forbidden);
        if (part.bytes == 0 || !blocks_.has_records(records_of_a_cut) || !has_space_for_remapped()) return true;
        if (!storage_.alias(part.address, to + moved.bytes, part.bytes)) return false;
        const MemoryBlockId old = blocks_.split_out(id, part);
        blocks_[old].state = MemoryBlock::State::Remapped;
        remapped_.push_back(old);
        moved.bytes += part.bytes;
        moved.position = std::max(moved.position, blocks_[old].position);
        return moved.bytes < bytes;
      });
    }
    return moved;
  }

  [[nodiscard]] bool map(const MemoryRange& range) noexcept {
    if (range.bytes == 0) return true;
    if (!reserved_.has_room_for(range.bytes) || !storage_.map(range.address, range.bytes)) return false;
    reserved_.add(range.bytes);
    return true;
  }

  // Unmaps memory of one block that is free for all. Returns how many bytes.
  std::size_t unmap_free(MemoryBlockId id, std::size_t most) noexcept {
    const MemoryRange part = granules_of(id, most, PieceMap::Excess::Allowed);
    if (part.bytes == 0 || !blocks_.has_records(records_of_a_cut)) return 0;
    const MemoryBlockId unmapped = blocks_.split_out(id, part);
    storage_.unmap(part.address, part.bytes);
    reserved_.remove(part.bytes);
    blocks_.make_unmapped(unmapped);
    return part.bytes;
  }

  // The last granules of the block that can be unmapped without the rest, at most `most` bytes unless `excess` or
  // rounding to granules allows more.
  [[nodiscard]] MemoryRange granules_of(MemoryBlockId id, std::size_t most, PieceMap::Excess excess) const noexcept {
    const MemoryRange block{blocks_[id].address, blocks_[id].size};
    if constexpr (PieceStorage<Storage>) {
      return storage_.last_pieces(granule_.last_within(block, block.bytes), most, excess);
    } else {
      return granule_.last_within(block, most);
    }
  }

  [[nodiscard]] bool has_space_for_remapped() noexcept {
    try {
      if (remapped_.size() == remapped_.capacity()) remapped_.reserve(2 * remapped_.size() + 16);
      return true;
    } catch (const std::bad_alloc&) {
      return false;
    }
  }

  void reserve_arena() {
    blocks_.reserve(1);
    arena_ = storage_.reserve(address_space_);
    first_ = blocks_.add({arena_, address_space_});
    blocks_.make_unmapped(first_);  // stays the first: a block is merged into the one before it
  }

  Storage& storage_;
  BlockMap& blocks_;
  ReservedBytes& reserved_;
  const Granularity granule_;
  const std::size_t address_space_;
  MemoryAddress arena_ = 0;
  MemoryBlockId first_ = 0;  // first block of the arena
  std::vector<MemoryBlockId> remapped_;
};

}  // namespace cox
