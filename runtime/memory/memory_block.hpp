#pragma once

#include <coxswain/runtime/memory/memory_storage.hpp>
#include <coxswain/runtime/memory/stream_position.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace cox {

/// The owner of memory, for reports: a name, or a source file and line.
struct MemoryLabel {
  const char* text = nullptr;  ///< static storage, or null
  std::uint32_t line = 0;      ///< 0: `text` is a name
};

/// The number of a block; 0: none.
using MemoryBlockId = std::uint32_t;

/// A range of addresses that is used, free or unmapped as a whole. The record is separate from the memory, which the
/// pool cannot access.
struct MemoryBlock {
  enum class State : std::uint8_t {
    Unused,    ///< The record is not in use.
    Live,      ///< Allocated.
    Free,      ///< Backed by memory, and in the free list of one stream or of all streams.
    Cached,    ///< Free, and cached without merging for the next allocation of its size.
    Blocked,   ///< Free, but no stream may use it before work on several streams has completed.
    Remapped,  ///< Addresses whose memory has been moved, but which queued work still uses.
    Unmapped,  ///< Addresses without memory.
  };

  MemoryAddress address = 0;
  std::size_t size = 0;        ///< bytes
  MemoryBlockId previous = 0;  ///< the block that ends where this one begins
  MemoryBlockId next = 0;
  MemoryBlockId listed_before = 0;  ///< in its FreeList
  MemoryBlockId listed_after = 0;
  std::uint64_t position = 0;    ///< Free: on stream `owner`; until it is reached, only that stream may use it
  const char* label = nullptr;   ///< Live: text of its MemoryLabel
  StreamSlot owner = no_stream;  ///< Free: no_stream if any stream may use it
  std::uint32_t label_line = 0;  ///< Live: line of its MemoryLabel
  std::uint32_t generation = 0;  ///< of the block; changes when it is freed
  std::uint16_t padding = 0;     ///< Live: bytes beyond the requested ones
  State state = State::Unused;
};
static_assert(sizeof(MemoryBlock) == 64);

/// All blocks of a pool, by number. The address of a record does not change.
class MemoryBlockTable {
 public:
  MemoryBlockTable() { chunks_.reserve(64); }

  [[nodiscard]] MemoryBlock& operator[](MemoryBlockId id) noexcept { return chunks_[id / chunk_size][id % chunk_size]; }
  [[nodiscard]] const MemoryBlock& operator[](MemoryBlockId id) const noexcept {
    return chunks_[id / chunk_size][id % chunk_size];
  }

  /// Ensures that the next `count` calls of allocate() succeed. Throws std::bad_alloc.
  void reserve(std::size_t count) {
    while (spare_count_ < count) add_chunk();
  }

  /// Takes an unused record. Precondition: reserve() was called for it.
  [[nodiscard]] MemoryBlockId allocate() noexcept {
    const MemoryBlockId id = spare_;
    spare_ = (*this)[id].next;
    --spare_count_;
    (*this)[id].next = 0;
    return id;
  }

  void free(MemoryBlockId id) noexcept {
    MemoryBlock& block = (*this)[id];
    block.state = MemoryBlock::State::Unused;
    block.previous = 0;
    block.next = spare_;
    spare_ = id;
    ++spare_count_;
  }

  /// Calls `visit(id, block)` for each record that is in use.
  template <class Visit>
  void for_each(Visit&& visit) const {
    for (MemoryBlockId id = 1; id < chunks_.size() * chunk_size; ++id) {
      if ((*this)[id].state != MemoryBlock::State::Unused) visit(id, (*this)[id]);
    }
  }

 private:
  static constexpr std::size_t chunk_size = 1024;

  void add_chunk() {
    const std::size_t first = chunks_.size() * chunk_size;
    chunks_.push_back(std::make_unique<MemoryBlock[]>(chunk_size));
    for (std::size_t id = first + chunk_size; id-- > (first == 0 ? 1 : first);) free(static_cast<MemoryBlockId>(id));
  }

  std::vector<std::unique_ptr<MemoryBlock[]>> chunks_;
  MemoryBlockId spare_ = 0;  // linked by next
  std::size_t spare_count_ = 0;
};

}  // namespace cox
