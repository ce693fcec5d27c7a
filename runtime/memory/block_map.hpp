#pragma once

#include <coxswain/runtime/memory/free_list.hpp>
#include <coxswain/runtime/memory/granularity.hpp>
#include <coxswain/runtime/memory/memory_block.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>
#include <vector>

namespace cox {

/// The records of a pool's memory: address ranges as blocks with a state, the neighbours of each block, and lists to
/// find a free block that fits. Does not call the storage. Not thread-safe.
///
///     Unmapped -- map --> Free for one stream <-- free -- Live
///      ^                   |          |                     ^
///      |          share_completed  allocate on it ----------|
///      |                   v                                |
///      +---- unmap ---- Free for all -- allocate on any ----+
///
/// Adjacent blocks are merged if both are unmapped, both are free for the same stream, or both are free for all
/// streams. Three states are not drawn. A block that was just freed is Cached until its memory is needed for another
/// size. A block with pending accesses on several streams is Blocked until they have completed; then it is free for
/// all. A block whose memory was moved is Remapped until it is unmapped.
class BlockMap {
  using State = MemoryBlock::State;

 public:
  /// `unit`: sizes of free blocks are looked up in multiples of it. `granule`: sizes of unmapped blocks are looked up
  /// in multiples of it. Both in bytes.
  BlockMap(std::size_t unit, std::size_t granule) : unit_(unit), shared_(unit), unmapped_(granule) {}

  [[nodiscard]] MemoryBlock& operator[](MemoryBlockId id) noexcept { return table_[id]; }
  [[nodiscard]] const MemoryBlock& operator[](MemoryBlockId id) const noexcept { return table_[id]; }

  // ---- records and lists that must exist before a change

  /// Ensures that `count` records can be taken without an allocation. take() and add() use one each, split_out() uses
  /// two. Throws std::bad_alloc.
  void reserve(std::size_t count) { table_.reserve(count); }

  [[nodiscard]] bool has_records(std::size_t count) noexcept {
    try {
      table_.reserve(count);
      return true;
    } catch (const std::bad_alloc&) {
      return false;
    }
  }

  /// Creates the lists of `stream`. Call it before `stream` is passed to any other function. Throws std::bad_alloc.
  void add_stream(StreamSlot stream) {
    if (stream == no_stream) return;
    const auto index = static_cast<std::size_t>(stream);
    if (index >= of_stream_.size()) of_stream_.resize(index + 1);
    if (of_stream_[index] == nullptr) of_stream_[index] = std::make_unique<FreeList>(unit_);
  }

  // ---- lookup

  /// Finds a block of at least `size` bytes that is free for `stream`, else one that is free for all. Constant time.
  /// Returns 0 if there is none, or if only search() can find it.
  [[nodiscard]] MemoryBlockId find(StreamSlot stream, std::size_t size) const noexcept {
    const MemoryBlockId id = list_of(stream).find(table_, size);
    return id != 0 || stream == no_stream ? id : shared_.find(table_, size);
  }

  /// Like find(), but not in constant time: returns 0 only if there is no such block.
  [[nodiscard]] MemoryBlockId search(StreamSlot stream, std::size_t size) const noexcept {
    const MemoryBlockId id = list_of(stream).search(table_, size);
    return id != 0 || stream == no_stream ? id : shared_.search(table_, size);
  }

  /// Like search(), over the blocks that are free for any single stream.
  [[nodiscard]] MemoryBlockId search_others(std::size_t size) const noexcept {
    for (const auto& list : of_stream_) {
      if (list == nullptr) continue;
      if (const MemoryBlockId id = list->search(table_, size); id != 0) return id;
    }
    return 0;
  }

  [[nodiscard]] MemoryBlockId find_unmapped(std::size_t size) const noexcept { return unmapped_.find(table_, size); }

  [[nodiscard]] bool is_free_of(MemoryBlockId id, StreamSlot stream) const noexcept {
    return id != 0 && table_[id].state == State::Free && table_[id].owner == stream;
  }

  /// Calls `visit(id, block)` for every block.
  template <class Visit>
  void for_each(Visit&& visit) const {
    table_.for_each(visit);
  }

  /// Calls `visit(id)` for each block that is free for `stream`, larger ones first, until it returns false. `visit` may
  /// change that block, but must not list more memory for `stream`.
  template <class Visit>
  void for_each_free(StreamSlot stream, Visit&& visit) const {
    list_of(stream).for_each(table_, visit);
  }

  // ---- allocating and freeing

  /// Removes and returns the cached block of exactly `size` bytes; 0 if there is none. The block is unlisted then.
  [[nodiscard]] MemoryBlockId take_cached(StreamSlot stream, std::size_t size) noexcept {
    return list_of(stream).take_cached(table_, size);
  }

  /// Makes the first `size` bytes of a listed block an unlisted block. The rest stays listed.
  void take(MemoryBlockId id, std::size_t size) noexcept {
    FreeList& list = list_of(table_[id]);
    list.remove(table_, id);
    if (table_[id].size > size) list.insert(table_, split(id, size));
  }

  /// Frees an unlisted block and caches it without merging it with its neighbours. `position`: when the stream `owner`
  /// reaches it, the last use of the block has completed.
  void cache(MemoryBlockId id, StreamSlot owner, std::uint64_t position) noexcept {
    MemoryBlock& block = table_[id];
    block.state = State::Cached;
    block.owner = owner;
    block.position = position;
    if (const MemoryBlockId other = list_of(owner).cache(table_, id); other != 0) list_cached(other);
  }

  /// Makes all cached blocks free and lists them. Returns whether there were any.
  bool list_all_cached() noexcept {
    bool found = list_all_cached(shared_);
    for (const auto& list : of_stream_) {
      if (list != nullptr && list_all_cached(*list)) found = true;
    }
    return found;
  }

  // ---- changing the state or the owner of a block

  /// Makes an unlisted block free for `owner`. `position`: when the stream `owner` reaches it, the last use of the
  /// block has completed.
  void make_free(MemoryBlockId id, StreamSlot owner, std::uint64_t position) noexcept {
    table_[id].state = State::Free;
    table_[id].owner = owner;
    table_[id].position = position;
    list(id);
  }

  /// Makes an unlisted block unmapped.
  void make_unmapped(MemoryBlockId id) noexcept {
    table_[id].state = State::Unmapped;
    list(id);
  }

  /// Makes a free block free for `owner`. Its position stays, so that earlier uses are still waited for; for no_stream
  /// it becomes 0.
  void relist(MemoryBlockId id, StreamSlot owner) noexcept {
    list_of(table_[id]).remove(table_, id);
    table_[id].owner = owner;
    if (owner == no_stream) table_[id].position = 0;
    list(id);
  }

  /// Makes blocks free for all streams if their own stream has reached their position, according to
  /// `clock.completed(stream)`. Returns whether there were any.
  template <class Clock>
  bool share_completed(const Clock& clock) noexcept {
    bool found = false;
    for (std::size_t index = 0; index < of_stream_.size(); ++index) {
      if (of_stream_[index] == nullptr || of_stream_[index]->empty()) continue;
      const std::uint64_t completed = clock.completed(static_cast<StreamSlot>(index));
      of_stream_[index]->for_each(table_, [&](MemoryBlockId id) {
        if (table_[id].position <= completed) {
          found = true;
          relist(id, no_stream);
        }
        return true;
      });
    }
    return found;
  }

  /// Looks for a run of adjacent blocks that are free for `stream` or for all and that has at least `size` bytes.
  /// Merges it into one block that is free for `stream`. Returns whether there was such a run.
  bool merge_shared(StreamSlot stream, std::size_t size) noexcept {
    MemoryBlockId joined = 0;
    shared_.for_each(table_, [&](MemoryBlockId id) {
      const MemoryBlockId before = is_free_of(table_[id].previous, stream) ? table_[id].previous : 0;
      if (before != 0 && is_free_of(table_[before].previous, no_stream)) return true;  // checked from that block
      const MemoryBlockId first = before != 0 ? before : id;
      if (!run_has(first, stream, size)) return true;
      relist(id, stream);
      joined = first;
      return false;
    });
    if (joined == 0) return false;
    while (is_free_of(table_[joined].next, no_stream)) relist(table_[joined].next, stream);
    return true;
  }

  // ---- ranges

  /// Adds an unlisted block that has no neighbours.
  MemoryBlockId add(const MemoryRange& range) noexcept {
    const MemoryBlockId id = table_.allocate();
    table_[id].address = range.address;
    table_[id].size = range.bytes;
    return id;
  }

  /// Removes a listed block that has no neighbours.
  void remove(MemoryBlockId id) noexcept {
    list_of(table_[id]).remove(table_, id);
    table_.free(id);
  }

  /// Makes a part of a listed block an unlisted block. The rest stays listed.
  MemoryBlockId split_out(MemoryBlockId id, const MemoryRange& part) noexcept {
    FreeList& list = list_of(table_[id]);
    list.remove(table_, id);
    const std::size_t head = part.address - table_[id].address;
    const MemoryBlockId middle = head == 0 ? id : split(id, head);
    if (table_[middle].size > part.bytes) list.insert(table_, split(middle, part.bytes));
    if (head != 0) list.insert(table_, id);
    return middle;
  }

  /// Whether the links and addresses of neighbours are consistent and every block is in the right list; for tests.
  /// Visits every block.
  [[nodiscard]] bool consistent() const {
    std::size_t blocks = 0;
    bool good = true;
    table_.for_each([&](MemoryBlockId id, const MemoryBlock& block) {
      if (block.state == State::Free || block.state == State::Unmapped) ++blocks;
      if (block.next == 0) return;
      const MemoryBlock& next = table_[block.next];
      good = good && next.previous == id && next.address == block.address + block.size && !can_merge(block, next);
    });
    std::size_t listed = 0;
    const auto count = [&](const FreeList& list, State state, StreamSlot owner) {
      list.for_each(table_, [&](MemoryBlockId id) {
        ++listed;
        good = good && table_[id].state == state && (state == State::Unmapped || table_[id].owner == owner);
        return good;
      });
    };
    count(unmapped_, State::Unmapped, no_stream);
    count(shared_, State::Free, no_stream);
    for (std::size_t index = 0; index < of_stream_.size(); ++index) {
      if (of_stream_[index] != nullptr) count(*of_stream_[index], State::Free, static_cast<StreamSlot>(index));
    }
    return good && blocks == listed;
  }

 private:
  [[nodiscard]] static bool can_merge(const MemoryBlock& a, const MemoryBlock& b) noexcept {
    if (a.state != b.state) return false;
    return a.state == State::Unmapped || (a.state == State::Free && a.owner == b.owner);
  }

  [[nodiscard]] FreeList& list_of(StreamSlot stream) noexcept {
    return stream == no_stream ? shared_ : *of_stream_[static_cast<std::size_t>(stream)];
  }
  [[nodiscard]] const FreeList& list_of(StreamSlot stream) const noexcept {
    return stream == no_stream ? shared_ : *of_stream_[static_cast<std::size_t>(stream)];
  }
  [[nodiscard]] FreeList& list_of(const MemoryBlock& block) noexcept {
    return block.state == State::Unmapped ? unmapped_ : list_of(block.owner);
  }

  // Whether the adjacent blocks from `first` on that are free for `stream` or for all have at least `size` bytes
  // together.
  [[nodiscard]] bool run_has(MemoryBlockId first, StreamSlot stream, std::size_t size) const noexcept {
    std::size_t bytes = 0;
    for (MemoryBlockId id = first; is_free_of(id, stream) || is_free_of(id, no_stream); id = table_[id].next) {
      bytes += table_[id].size;
      if (bytes >= size) return true;
    }
    return false;
  }

  // Merges block `id` with its neighbours where can_merge() allows it, and lists the result.
  void list(MemoryBlockId id) noexcept {
    if (const MemoryBlockId before = table_[id].previous; before != 0 && can_merge(table_[before], table_[id])) {
      list_of(table_[before]).remove(table_, before);
      merge(before, id);
      id = before;
    }
    if (const MemoryBlockId after = table_[id].next; after != 0 && can_merge(table_[id], table_[after])) {
      list_of(table_[after]).remove(table_, after);
      merge(id, after);
    }
    list_of(table_[id]).insert(table_, id);
  }

  void list_cached(MemoryBlockId id) noexcept {
    table_[id].state = State::Free;
    list(id);
  }

  bool list_all_cached(FreeList& cached) noexcept {
    bool found = false;
    while (const MemoryBlockId id = cached.take_any_cached()) {
      found = true;
      list_cached(id);
    }
    return found;
  }

  void merge(MemoryBlockId id, MemoryBlockId after) noexcept {
    MemoryBlock& block = table_[id];
    MemoryBlock& gone = table_[after];
    block.size += gone.size;
    block.position = std::max(block.position, gone.position);
    block.next = gone.next;
    if (gone.next != 0) table_[gone.next].previous = id;
    table_.free(after);
  }

  // Splits an unlisted block after `size` bytes. Returns the rest, which is unlisted and has the same state and owner.
  MemoryBlockId split(MemoryBlockId id, std::size_t size) noexcept {
    const MemoryBlockId rest_id = table_.allocate();
    MemoryBlock& block = table_[id];
    MemoryBlock& rest = table_[rest_id];
    rest.address = block.address + size;
    rest.size = block.size - size;
    rest.previous = id;
    rest.next = block.next;
    rest.position = block.position;
    rest.owner = block.owner;
    rest.state = block.state;
    if (rest.next != 0) table_[rest.next].previous = rest_id;
    block.next = rest_id;
    block.size = size;
    return rest_id;
  }

  std::size_t unit_;
  MemoryBlockTable table_;
  FreeList shared_;  // free for all
  FreeList unmapped_;
  std::vector<std::unique_ptr<FreeList>> of_stream_;  // free for one stream until its work has completed
};

}  // namespace cox
