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

/// What a pool knows of its memory: ranges of addresses as blocks with a state, which of them are neighbours, and which
/// free one fits. Calls no storage. Not thread-safe.
///
///     Unmapped -- map --> Free of a stream <--- free ---- Live
///      ^                   |          |                     ^
///      |          share_completed  allocate on it ----------|
///      |                   v                                |
///      +---- unmap ---- Free of all --- allocate on any ----+
///
/// Neighbours that are unmapped, or free of the same stream, are one block. Beside the drawing: a block that was just
/// freed is Cached until it is needed for something else than its size; one that several streams used is Blocked before
/// it is free of all; one whose memory has moved is Remapped before it is unmapped.
class BlockMap {
  using State = MemoryBlock::State;

 public:
  /// `unit`: free memory is looked up in multiples of it. `granule`: the same of unmapped addresses. Both in bytes.
  BlockMap(std::size_t unit, std::size_t granule) : unit_(unit), shared_(unit), unmapped_(granule) {}

  [[nodiscard]] MemoryBlock& operator[](MemoryBlockId id) noexcept { return table_[id]; }
  [[nodiscard]] const MemoryBlock& operator[](MemoryBlockId id) const noexcept { return table_[id]; }

  // ---- what must be there before anything is changed

  /// The next `count` records are there. Taking a block takes one, add() one, split_out() two. Throws std::bad_alloc.
  void reserve(std::size_t count) { table_.reserve(count); }

  [[nodiscard]] bool has_records(std::size_t count) noexcept {
    try {
      table_.reserve(count);
      return true;
    } catch (const std::bad_alloc&) {
      return false;
    }
  }

  /// Before `stream` is named to any other function. Throws std::bad_alloc.
  void add_stream(StreamSlot stream) {
    if (stream == no_stream) return;
    const auto index = static_cast<std::size_t>(stream);
    if (index >= of_stream_.size()) of_stream_.resize(index + 1);
    if (of_stream_[index] == nullptr) of_stream_[index] = std::make_unique<FreeList>(unit_);
  }

  // ---- looking

  /// A free block of at least `size` bytes, of `stream` or else of all; or 0: there is none, or not at first sight.
  [[nodiscard]] MemoryBlockId find(StreamSlot stream, std::size_t size) const noexcept {
    const MemoryBlockId id = list_of(stream).find(table_, size);
    return id != 0 || stream == no_stream ? id : shared_.find(table_, size);
  }

  /// The same, and not in constant time: 0 means that there is none.
  [[nodiscard]] MemoryBlockId search(StreamSlot stream, std::size_t size) const noexcept {
    const MemoryBlockId id = list_of(stream).search(table_, size);
    return id != 0 || stream == no_stream ? id : shared_.search(table_, size);
  }

  /// The same of any stream that was added.
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

  /// Calls `visit(id)` for each free block of `stream`, larger ones first, until it returns false. The visit may change
  /// that block, but list no memory for `stream` that was not.
  template <class Visit>
  void for_each_free(StreamSlot stream, Visit&& visit) const {
    list_of(stream).for_each(table_, visit);
  }

  // ---- handing out and taking back

  /// The block of exactly that size that was freed last, now unlisted; or 0.
  [[nodiscard]] MemoryBlockId take_cached(StreamSlot stream, std::size_t size) noexcept {
    return list_of(stream).take_cached(table_, size);
  }

  /// Makes the first `size` bytes of a block that was found an unlisted block.
  void take(MemoryBlockId id, std::size_t size) noexcept {
    FreeList& list = list_of(table_[id]);
    list.remove(table_, id);
    if (table_[id].size > size) list.insert(table_, split(id, size));
  }

  /// Frees an unlisted block without joining it to others.
  void cache(MemoryBlockId id, StreamSlot owner, std::uint64_t position) noexcept {
    MemoryBlock& block = table_[id];
    block.state = State::Cached;
    block.owner = owner;
    block.position = position;
    if (const MemoryBlockId other = list_of(owner).cache(table_, id); other != 0) list_cached(other);
  }

  /// Lists all cached blocks. Returns whether there were any.
  bool list_all_cached() noexcept {
    bool found = list_all_cached(shared_);
    for (const auto& list : of_stream_) {
      if (list != nullptr && list_all_cached(*list)) found = true;
    }
    return found;
  }

  // ---- changing whose a block is

  /// An unlisted block is free. `position`: of `owner`, when its last use is done.
  void make_free(MemoryBlockId id, StreamSlot owner, std::uint64_t position) noexcept {
    table_[id].state = State::Free;
    table_[id].owner = owner;
    table_[id].position = position;
    list(id);
  }

  /// An unlisted block has no memory any more.
  void make_unmapped(MemoryBlockId id) noexcept {
    table_[id].state = State::Unmapped;
    list(id);
  }

  /// A free block is `owner`'s, after what came before.
  void relist(MemoryBlockId id, StreamSlot owner) noexcept {
    list_of(table_[id]).remove(table_, id);
    table_[id].owner = owner;
    if (owner == no_stream) table_[id].position = 0;
    list(id);
  }

  /// Makes free of all what its stream has passed, as `clock.completed(stream)` says. Returns whether there was any.
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

  /// Joins free memory of `stream` with memory beside it that is free of all, where together it is at least `size`
  /// bytes. Returns whether there was any.
  bool merge_shared(StreamSlot stream, std::size_t size) noexcept {
    MemoryBlockId joined = 0;
    shared_.for_each(table_, [&](MemoryBlockId id) {
      const MemoryBlockId before = is_free_of(table_[id].previous, stream) ? table_[id].previous : 0;
      if (before != 0 && is_free_of(table_[before].previous, no_stream)) return true;  // seen from there
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

  /// A new block that has no neighbours. It is unlisted.
  MemoryBlockId add(const MemoryRange& range) noexcept {
    const MemoryBlockId id = table_.allocate();
    table_[id].address = range.address;
    table_[id].size = range.bytes;
    return id;
  }

  /// Forgets a listed block that has no neighbours.
  void remove(MemoryBlockId id) noexcept {
    list_of(table_[id]).remove(table_, id);
    table_.free(id);
  }

  /// Makes a part of a listed block an unlisted block.
  MemoryBlockId split_out(MemoryBlockId id, const MemoryRange& part) noexcept {
    FreeList& list = list_of(table_[id]);
    list.remove(table_, id);
    const std::size_t head = part.address - table_[id].address;
    const MemoryBlockId middle = head == 0 ? id : split(id, head);
    if (table_[middle].size > part.bytes) list.insert(table_, split(middle, part.bytes));
    if (head != 0) list.insert(table_, id);
    return middle;
  }

  /// Whether neighbours fit together, and every block is listed where it belongs; for tests. Visits every block.
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

  // Whether the blocks from `first` on that are free of `stream` or of all have `size` bytes.
  [[nodiscard]] bool run_has(MemoryBlockId first, StreamSlot stream, std::size_t size) const noexcept {
    std::size_t bytes = 0;
    for (MemoryBlockId id = first; is_free_of(id, stream) || is_free_of(id, no_stream); id = table_[id].next) {
      bytes += table_[id].size;
      if (bytes >= size) return true;
    }
    return false;
  }

  // Makes one block of `id` and its neighbours of the same kind, and lists it.
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

  // Cuts an unlisted block in two; returns the second, of the same kind and unlisted.
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
  FreeList shared_;  // free of all
  FreeList unmapped_;
  std::vector<std::unique_ptr<FreeList>> of_stream_;  // free of one stream until its work is done
};

}  // namespace cox
