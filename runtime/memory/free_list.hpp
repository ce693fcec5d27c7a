#pragma once

#include <coxswain/runtime/memory/memory_block.hpp>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>

namespace cox {

/// Free blocks by size, so that a block that is large enough is found in constant time. A list holds blocks of nearly
/// the same size; there are 32 lists per power of two, and bitmaps of the lists that are not empty. After Masmano,
/// Ripoll, Crespo and Real, "TLSF: a New Dynamic Memory Allocator for Real-Time Systems" (ECRTS 2004). Unlike TLSF,
/// find() checks a few blocks of the list of the size itself first, because programs request the same sizes again and
/// again. For the same reason the most recently freed block of a size is cached outside the lists, without merging,
/// until another block takes its slot. Nothing allocates or throws.
class FreeList {
 public:
  /// `unit`: every size is a multiple of it, in bytes.
  explicit FreeList(std::size_t unit) noexcept : unit_(unit) {}

  [[nodiscard]] bool empty() const noexcept { return rows_ == 0 && cached_slots_ == 0; }

  // ---- cached blocks

  /// Caches a block. Returns the block that had its slot before, or 0.
  [[nodiscard]] MemoryBlockId cache(const MemoryBlockTable& blocks, MemoryBlockId id) noexcept {
    const std::size_t slot = cache_slot_of(blocks[id].size);
    cached_slots_ |= std::uint64_t{1} << slot;
    return std::exchange(cached_[slot], id);
  }

  /// Removes and returns the cached block of exactly `size` bytes; 0 if there is none.
  [[nodiscard]] MemoryBlockId take_cached(const MemoryBlockTable& blocks, std::size_t size) noexcept {
    const std::size_t slot = cache_slot_of(size);
    if (cached_[slot] == 0 || blocks[cached_[slot]].size != size) return 0;
    cached_slots_ &= ~(std::uint64_t{1} << slot);
    return std::exchange(cached_[slot], 0);
  }

  /// Removes and returns any cached block; 0 if there is none.
  [[nodiscard]] MemoryBlockId take_any_cached() noexcept {
    if (cached_slots_ == 0) return 0;
    const auto slot = static_cast<std::size_t>(std::countr_zero(cached_slots_));
    cached_slots_ &= cached_slots_ - 1;
    return std::exchange(cached_[slot], 0);
  }

  // ---- listed blocks

  void insert(MemoryBlockTable& blocks, MemoryBlockId id) noexcept {
    const std::size_t list = list_of(blocks[id].size);
    MemoryBlockId& head = heads_[list];
    blocks[id].listed_before = 0;
    blocks[id].listed_after = head;
    if (head != 0) blocks[head].listed_before = id;
    head = id;
    columns_[list / columns] |= 1U << (list % columns);
    rows_ |= std::uint64_t{1} << (list / columns);
  }

  void remove(MemoryBlockTable& blocks, MemoryBlockId id) noexcept {
    const MemoryBlock& block = blocks[id];
    if (block.listed_after != 0) blocks[block.listed_after].listed_before = block.listed_before;
    if (block.listed_before != 0) {
      blocks[block.listed_before].listed_after = block.listed_after;
      return;
    }
    const std::size_t list = list_of(block.size);
    heads_[list] = block.listed_after;
    if (block.listed_after != 0) return;
    columns_[list / columns] &= ~(1U << (list % columns));
    if (columns_[list / columns] == 0) rows_ &= ~(std::uint64_t{1} << (list / columns));
  }

  /// Finds a block of at least `size` bytes. Constant time: checks the first max_scanned blocks of the list of that
  /// size, then returns a block of the next larger list that is not empty. Returns 0 if there is none, or if only a
  /// later block of the first list fits.
  [[nodiscard]] MemoryBlockId find(const MemoryBlockTable& blocks, std::size_t size) const noexcept {
    const std::size_t list = list_of(size);
    const MemoryBlockId id = scan_list(blocks, list, size, max_scanned);
    return id != 0 ? id : first_from(list + 1);
  }

  /// Like find(), but checks all blocks of the first list. Returns 0 only if there is no such block.
  [[nodiscard]] MemoryBlockId search(const MemoryBlockTable& blocks, std::size_t size) const noexcept {
    const std::size_t list = list_of(size);
    const MemoryBlockId id = scan_list(blocks, list, size, std::numeric_limits<std::size_t>::max());
    return id != 0 ? id : first_from(list + 1);
  }

  /// Calls `visit(id)` for each listed block, larger ones first, until it returns false. `visit` may remove that block.
  template <class Visit>
  void for_each(const MemoryBlockTable& blocks, Visit&& visit) const {
    for (std::size_t list = heads_.size(); list-- > 0;) {
      if (columns_[list / columns] == 0) {
        list -= list % columns;
        continue;
      }
      for (MemoryBlockId id = heads_[list]; id != 0;) {
        const MemoryBlockId after = blocks[id].listed_after;
        if (!visit(id)) return;
        id = after;
      }
    }
  }

 private:
  static constexpr std::size_t columns = 32;
  static constexpr std::size_t rows = 50;  // 2^53 units and more share the last row
  static constexpr std::size_t max_scanned = 8;
  static constexpr std::size_t cache_slots = 64;

  [[nodiscard]] MemoryBlockId scan_list(const MemoryBlockTable& blocks, std::size_t list, std::size_t size,
                                        std::size_t most) const noexcept {
    MemoryBlockId id = heads_[list];
    for (; id != 0 && most != 0; --most, id = blocks[id].listed_after) {
      if (blocks[id].size >= size) return id;
    }
    return 0;
  }

  [[nodiscard]] std::size_t cache_slot_of(std::size_t size) const noexcept {
    return static_cast<std::size_t>((size / unit_ * 0x9E3779B97F4A7C15U) >> 58U);  // Knuth's multiplicative hash
  }

  // Sizes below 32 units have one list each. Above, there are 32 lists per power of two.
  [[nodiscard]] std::size_t list_of(std::size_t size) const noexcept {
    const std::size_t units = size / unit_;
    if (units < columns) return units;
    const auto exponent = static_cast<std::size_t>(std::bit_width(units)) - 6;
    const std::size_t row = exponent + 1 < rows ? exponent + 1 : rows - 1;
    return row * columns + ((units >> exponent) & (columns - 1));
  }

  [[nodiscard]] MemoryBlockId first_from(std::size_t list) const noexcept {
    std::size_t row = list / columns;
    if (row >= rows) return 0;
    std::uint32_t here = columns_[row] & (~0U << (list % columns));
    if (here == 0) {
      const std::uint64_t above = row + 1 < 64 ? rows_ & (~std::uint64_t{0} << (row + 1)) : 0;
      if (above == 0) return 0;
      row = static_cast<std::size_t>(std::countr_zero(above));
      here = columns_[row];
    }
    return heads_[row * columns + static_cast<std::size_t>(std::countr_zero(here))];
  }

  std::size_t unit_;
  std::uint64_t cached_slots_ = 0;  // bit p: cached_[p] != 0
  std::array<MemoryBlockId, cache_slots> cached_{};
  std::uint64_t rows_ = 0;                     // bit r: columns_[r] != 0
  std::array<std::uint32_t, rows> columns_{};  // bit c: the list r * 32 + c is not empty
  std::array<MemoryBlockId, rows * columns> heads_{};
};

}  // namespace cox
