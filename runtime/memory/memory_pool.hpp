#pragma once

#include <coxswain/runtime/memory/free_list.hpp>
#include <coxswain/runtime/memory/memory_block.hpp>
#include <coxswain/runtime/memory/memory_report.hpp>
#include <coxswain/runtime/memory/memory_storage.hpp>
#include <coxswain/runtime/memory/stream_position.hpp>
#include <coxswain/runtime/memory_usage.hpp>
#include <coxswain/runtime/small_vector.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace cox {

/// How far the streams of a device have come. `completed(stream)` is cheap: it is asked for every free block that
/// waits.
template <class C>
concept StreamClock = requires(const C& clock, StreamSlot stream) {
  { clock.completed(stream) } noexcept -> std::same_as<std::uint64_t>;
};

struct MemoryPoolOptions {
  std::size_t alignment = 512;  ///< bytes, a power of two, at most 64 KiB; the storage's granularity is a multiple
  std::size_t capacity = std::numeric_limits<std::size_t>::max();  ///< bytes that may be taken from the storage
  /// Bytes of addresses, where they are mapped; more than memory, so that gaps between blocks cost addresses only.
  std::size_t address_space = std::size_t{1} << 40U;
  /// Beyond the peak in use: memory that may be taken before free memory elsewhere is moved by mapping. In per mille.
  std::size_t slack = 20;
};

/// Whether an allocation may do more than take what is free.
enum class Growth : std::uint8_t {
  Allowed,
  Forbidden,  ///< The storage is not called, and no other stream has to be waited for, as while a graph is captured.
};

/// Memory that a pool has handed out.
struct MemoryAllocation {
  MemoryBlockId block = 0;
  std::uint32_t generation = 0;  ///< of the block: tells this allocation from later ones
  MemoryAddress address = 0;
  std::size_t size = 0;  ///< bytes, a multiple of the alignment
  /// The memory's last use. Work on any other stream waits for it before it touches the memory.
  StreamPosition after;
};

/// The memory of one device and kind, for all its streams. Allocating and freeing take constant time. Not thread-safe:
/// device thread only.
///
/// Memory is freed in stream order: it may still be in use by work that is queued. Until that is done, only the stream
/// of the work may have it again, which it does at once; afterwards every stream may (law L11).
///
///     Bare -- map --> Free of a stream <--- free ---- Live
///      ^               |          |                     ^
///      |          settle       allocate on it ----------|
///      |               v                                |
///      +-- unmap -- Free of all --- allocate on any ----+
///
/// Neighbours in the same state are one block. What does not fit into free memory is mapped behind new addresses. Where
/// the pool would then hold more than `slack` allows, it takes the memory for it from free granules elsewhere: those
/// that no work uses any more are unmapped; those that only the stream itself has yet to use get the new addresses
/// beside the old ones, which are given up when its work has passed them. So free memory is never too scattered to be
/// used.
template <MemoryStorage Storage, StreamClock Clock>
class MemoryPool {
  using State = MemoryBlock::State;
  static constexpr bool maps = MappingStorage<Storage>;
  static constexpr bool aliases = AliasingStorage<Storage>;

 public:
  MemoryPool(Storage& storage, const Clock& clock, const MemoryPoolOptions& options)
      : storage_(storage),
        clock_(clock),
        options_(options),
        granule_(storage.granularity()),
        settled_(options.alignment),
        bare_(granule_) {}
  MemoryPool(const MemoryPool&) = delete;
  MemoryPool& operator=(const MemoryPool&) = delete;

  /// Gives everything back. No work touches the memory any more.
  ~MemoryPool() { give_back_all(); }

  /// Memory of at least `bytes` > 0 bytes for first use on `stream`. Nothing: the device has none, not even after what
  /// is free everywhere has been collected; report() says why. Throws std::bad_alloc if there is no host memory for the
  /// pool's own records; then nothing is allocated. no_stream: for first use by any stream. With Growth::Forbidden only
  /// from what `stream` or nobody has yet to use.
  [[nodiscard]] std::optional<MemoryAllocation> allocate(std::size_t bytes, StreamSlot stream, MemoryLabel label = {},
                                                         Growth growth = Growth::Allowed) {
    if (bytes > std::min(options_.capacity, largest)) return std::nullopt;
    const std::size_t size = round_up(bytes, options_.alignment);
    FreeList& own = list_of(stream);
    blocks_.reserve(8);
    MemoryBlockId id = own.take_kept(blocks_, size);
    if (id == 0) id = find(own, size);
    if (id == 0 && keep_nothing()) id = find(own, size);
    if (id == 0 && settle()) id = find(own, size);
    if (id == 0 && stream != no_stream && join_settled(stream)) id = find(own, size);
    if (growth == Growth::Allowed) {
      if (id == 0 && obtain(size, stream)) id = find(own, size);
      if (id == 0) id = find_of_others(size);
    }
    if (id == 0) return std::nullopt;
    return hand_out(id, size, bytes, label);
  }

  /// Takes memory back. `uses`: the last use on each stream that may not be done, `after` among them if nothing has
  /// waited for it; empty: nothing uses it. Throws std::bad_alloc as allocate() does; the allocation stays: try again.
  void free(const MemoryAllocation& allocation, std::span<const StreamPosition> uses) {
    const MemoryBlockId id = allocation.block;
    if (uses.size() == 1) {
      static_cast<void>(list_of(uses.front().stream));
    } else if (uses.size() > 1) {
      blocked_.emplace_back(id, std::vector<StreamPosition>(uses.begin(), uses.end()));
    }
    MemoryBlock& block = blocks_[id];
    in_use_ -= block.size - block.padding;
    padding_ -= block.padding;
    --live_;
    ++block.generation;
    if (uses.size() > 1) {
      block.state = State::Blocked;
      return;
    }
    block.state = State::Kept;
    block.owner = uses.empty() ? no_stream : uses.front().stream;
    block.position = uses.empty() ? 0 : uses.front().position;
    if (const MemoryBlockId other = list_of(block).keep(blocks_, id); other != 0) list_kept(other);
  }

  /// Whether `allocation` has not been freed.
  [[nodiscard]] bool alive(const MemoryAllocation& allocation) const noexcept {
    const MemoryBlock& block = blocks_[allocation.block];
    return block.state == State::Live && block.generation == allocation.generation;
  }

  /// Gives back to the storage what is free and no work touches any more.
  void cleanup() noexcept {
    keep_nothing();
    settle();
    unmap_left();
    reclaim(std::numeric_limits<std::size_t>::max());
    if constexpr (maps) storage_.trim();
  }

  /// Changes how many bytes may be taken from the storage. Below what is reserved: nothing more is taken until it fits;
  /// what is free can still be had, by allocations that are not larger than the capacity.
  void set_capacity(std::size_t bytes) noexcept { options_.capacity = bytes; }
  [[nodiscard]] std::size_t capacity() const noexcept { return options_.capacity; }

  /// Bytes taken from the storage, free ones included.
  [[nodiscard]] std::size_t reserved() const noexcept { return reserved_; }
  /// Allocations that have not been freed.
  [[nodiscard]] std::uint64_t live() const noexcept { return live_; }

  [[nodiscard]] MemoryUsage usage() const noexcept {
    return {.number_allocs = live_,
            .bytes_in_use = in_use_,
            .bytes_padding = padding_,
            .bytes_reserved = reserved_,
            .peak_bytes_in_use = peak_in_use_,
            .peak_bytes_reserved = peak_reserved_};
  }

  /// The whole picture. Visits every block.
  [[nodiscard]] MemoryReport report() const {
    MemoryReport report;
    report.usage = usage();
    report.capacity = options_.capacity;
    blocks_.each([&report](MemoryBlockId, const MemoryBlock& block) { report.add(block); });
    return report;
  }

  /// Checks every law that blocks obey; for tests. Visits every block.
  [[nodiscard]] bool consistent() const {
    std::size_t in_use = 0;
    std::size_t reserved = 0;
    bool good = true;
    blocks_.each([&](MemoryBlockId id, const MemoryBlock& block) {
      if (block.state != State::Bare && block.state != State::Leaving) reserved += block.size;
      if (block.state == State::Live) in_use += block.size - block.padding;
      if (block.next == 0) return;
      const MemoryBlock& next = blocks_[block.next];
      good = good && next.previous == id && next.address == block.address + block.size && !alike(block, next);
    });
    return good && in_use == in_use_ && reserved == reserved_;
  }

 private:
  struct BlockedBlock {
    MemoryBlockId id;
    std::vector<StreamPosition> uses;
  };

  [[nodiscard]] static constexpr std::size_t round_up(std::size_t value, std::size_t step) noexcept {
    return (value + step - 1) / step * step;
  }
  [[nodiscard]] static constexpr std::size_t round_down(std::size_t value, std::size_t step) noexcept {
    return value / step * step;
  }

  // -- lists

  FreeList& list_of(StreamSlot stream) {
    if (stream == no_stream) return settled_;
    const auto index = static_cast<std::size_t>(stream);
    if (index >= of_stream_.size()) of_stream_.resize(index + 1);
    if (of_stream_[index] == nullptr) of_stream_[index] = std::make_unique<FreeList>(options_.alignment);
    return *of_stream_[index];
  }

  FreeList& list_of(const MemoryBlock& block) noexcept {
    if (block.state == State::Bare) return bare_;
    return block.owner == no_stream ? settled_ : *of_stream_[static_cast<std::size_t>(block.owner)];
  }

  [[nodiscard]] MemoryBlockId find(const FreeList& own, std::size_t size) const noexcept {
    const MemoryBlockId id = own.find(blocks_, size);
    return id != 0 ? id : settled_.find(blocks_, size);
  }

  // Memory that another stream has yet to use: the caller's stream will wait for it.
  [[nodiscard]] MemoryBlockId find_of_others(std::size_t size) const noexcept {
    for (const auto& list : of_stream_) {
      if (list == nullptr) continue;
      if (const MemoryBlockId id = list->find(blocks_, size); id != 0) return id;
    }
    return 0;
  }

  // -- blocks

  [[nodiscard]] static bool alike(const MemoryBlock& a, const MemoryBlock& b) noexcept {
    if (a.state != b.state) return false;
    return a.state == State::Bare || (a.state == State::Free && a.owner == b.owner);
  }

  // Makes one block of `id` and its neighbours of the same kind, and lists it.
  void list(MemoryBlockId id) noexcept {
    if (const MemoryBlockId before = blocks_[id].previous; before != 0 && alike(blocks_[before], blocks_[id])) {
      list_of(blocks_[before]).remove(blocks_, before);
      swallow(before, id);
      id = before;
    }
    if (const MemoryBlockId after = blocks_[id].next; after != 0 && alike(blocks_[id], blocks_[after])) {
      list_of(blocks_[after]).remove(blocks_, after);
      swallow(id, after);
    }
    list_of(blocks_[id]).insert(blocks_, id);
  }

  void list_kept(MemoryBlockId id) noexcept {
    blocks_[id].state = State::Free;
    list(id);
  }

  // Lists all kept blocks. Returns whether there were any.
  bool keep_nothing() noexcept {
    bool found = false;
    const auto empty = [&](FreeList& list) {
      while (const MemoryBlockId id = list.take_any_kept()) {
        found = true;
        list_kept(id);
      }
    };
    empty(settled_);
    for (const auto& list : of_stream_) {
      if (list != nullptr) empty(*list);
    }
    return found;
  }

  void swallow(MemoryBlockId id, MemoryBlockId after) noexcept {
    MemoryBlock& block = blocks_[id];
    MemoryBlock& gone = blocks_[after];
    block.size += gone.size;
    block.position = std::max(block.position, gone.position);
    block.next = gone.next;
    if (gone.next != 0) blocks_[gone.next].previous = id;
    blocks_.give_back(after);
  }

  // Cuts an unlisted block in two; returns the second, of the same kind and unlisted. A record is in reserve.
  MemoryBlockId cut(MemoryBlockId id, std::size_t size) noexcept {
    const MemoryBlockId rest_id = blocks_.take();
    MemoryBlock& block = blocks_[id];
    MemoryBlock& rest = blocks_[rest_id];
    rest.address = block.address + size;
    rest.size = block.size - size;
    rest.previous = id;
    rest.next = block.next;
    rest.position = block.position;
    rest.owner = block.owner;
    rest.state = block.state;
    if (rest.next != 0) blocks_[rest.next].previous = rest_id;
    block.next = rest_id;
    block.size = size;
    return rest_id;
  }

  MemoryAllocation hand_out(MemoryBlockId id, std::size_t size, std::size_t bytes, MemoryLabel label) noexcept {
    MemoryBlock& block = blocks_[id];
    if (block.state == State::Free) {
      FreeList& list = list_of(block);
      list.remove(blocks_, id);
      if (block.size > size) list.insert(blocks_, cut(id, size));
    }
    block.state = State::Live;
    block.padding = static_cast<std::uint16_t>(block.size - bytes);
    block.label = label.text;
    block.label_line = label.line;
    in_use_ += bytes;
    padding_ += block.padding;
    ++live_;
    peak_in_use_ = std::max(peak_in_use_, in_use_);
    peak_handed_out_ = std::max(peak_handed_out_, in_use_ + padding_);
    return {id, block.generation, block.address, block.size, {block.owner, block.position}};
  }

  // -- stream order

  // Frees for all streams what work has passed. Returns whether there was anything.
  bool settle() noexcept {
    bool found = false;
    for (std::size_t slot = 0; slot < of_stream_.size(); ++slot) {
      if (of_stream_[slot] == nullptr || of_stream_[slot]->empty()) continue;
      const std::uint64_t completed = clock_.completed(static_cast<StreamSlot>(slot));
      of_stream_[slot]->each(blocks_, [&](MemoryBlockId id) {
        if (blocks_[id].position <= completed) {
          found = true;
          relist(id, no_stream);
        }
        return true;
      });
    }
    std::erase_if(blocked_, [&](const BlockedBlock& blocked) {
      const bool done = std::ranges::all_of(
          blocked.uses, [&](const StreamPosition& use) { return clock_.completed(use.stream) >= use.position; });
      if (done) {
        found = true;
        blocks_[blocked.id].state = State::Free;
        blocks_[blocked.id].owner = no_stream;
        blocks_[blocked.id].position = 0;
        list(blocked.id);
      }
      return done;
    });
    return found;
  }

  // Joins free memory of `stream` with the settled memory beside it. Returns whether there was any.
  bool join_settled(StreamSlot stream) noexcept {
    bool found = false;
    settled_.each(blocks_, [&](MemoryBlockId id) {
      const MemoryBlock& block = blocks_[id];
      if (is_free_of(block.previous, stream) || is_free_of(block.next, stream)) {
        found = true;
        relist(id, stream);
      }
      return true;
    });
    return found;
  }

  [[nodiscard]] bool is_free_of(MemoryBlockId id, StreamSlot stream) const noexcept {
    return id != 0 && blocks_[id].state == State::Free && blocks_[id].owner == stream;
  }

  void relist(MemoryBlockId id, StreamSlot owner) noexcept {
    list_of(blocks_[id]).remove(blocks_, id);
    blocks_[id].owner = owner;
    if (owner == no_stream) blocks_[id].position = 0;
    list(id);
  }

  // -- the storage

  // Makes `size` bytes free for `stream`, with the storage's help.
  bool obtain(std::size_t size, StreamSlot stream) {
    unmap_left();
    return grow(size, stream);
  }

  // Gives up the addresses of moved memory that work has passed.
  void unmap_left() noexcept {
    if constexpr (maps) {
      std::erase_if(leaving_, [&](MemoryBlockId id) {
        const bool done = clock_.completed(blocks_[id].owner) >= blocks_[id].position;
        if (done) {
          storage_.unmap(blocks_[id].address, blocks_[id].size);
          blocks_[id].state = State::Bare;
          list(id);
        }
        return done;
      });
    }
  }

  // Puts memory behind more addresses, so that `size` bytes are free for `stream`.
  bool grow(std::size_t size, StreamSlot stream) {
    const std::size_t missing = round_up(size, granule_);
    const std::size_t wanted = std::max(peak_handed_out_, in_use_ + padding_ + size);
    const std::size_t allowed = std::min(options_.capacity, wanted + wanted / 1000 * options_.slack + 2 * granule_);
    if (reserved_ + missing > allowed) reclaim(reserved_ + missing - allowed);
    if (add(size, stream, allowed)) return true;
    reclaim(missing);
    return add(size, stream, allowed);
  }

  // Returns false, with less added or nothing, where that would exceed the pool's capacity or the storage's.
  bool add(std::size_t size, StreamSlot stream, std::size_t allowed)
    requires maps
  {
    if (arena_ == 0) reserve_arena();
    blocks_.reserve(8);
    const MemoryBlockId bare = bare_.find(blocks_, round_up(size, granule_));
    if (bare == 0) return false;
    // Free memory that ends where the new begins is part of it.
    const MemoryBlockId before = blocks_[bare].previous;
    const bool joins = is_free_of(before, stream) || is_free_of(before, no_stream);
    const std::size_t missing = round_up(size - (joins ? std::min(blocks_[before].size, size - 1) : 0), granule_);
    const MemoryAddress address = blocks_[bare].address;
    Moved moved;
    if (aliases && stream != no_stream && reserved_ + missing > allowed) {
      const std::size_t excess = std::min(reserved_ + missing - allowed, missing);
      moved = move_own(stream, before, address, round_up(excess, granule_));
    }
    const std::size_t mapped = missing - moved.bytes;
    const bool enough =
        mapped == 0 || (reserved_ + mapped <= options_.capacity && storage_.map(address + moved.bytes, mapped));
    if (enough) account(mapped);
    const std::size_t backed = enough ? missing : moved.bytes;
    if (backed == 0) return false;
    bare_.remove(blocks_, bare);
    if (blocks_[bare].size > backed) bare_.insert(blocks_, cut(bare, backed));
    add_free(bare, stream, moved.position);
    if (joins && is_free_of(before, no_stream)) relist(before, stream);
    return enough;
  }

  struct Moved {
    std::size_t bytes = 0;
    std::uint64_t position = 0;  // until then the memory is in use at its old addresses
  };

  // Puts up to `bytes` of memory that only `stream` has yet to use behind the addresses from `to` on: its work runs in
  // order, so that the memory is used at the old addresses before it is at the new ones. `except`: not of this block.
  Moved move_own(StreamSlot stream, MemoryBlockId except, MemoryAddress to, std::size_t bytes) {
    Moved moved;
    if constexpr (aliases) {
      list_of(stream).each(blocks_, [&](MemoryBlockId id) {
        if (id == except) return true;
        const Granules granules = granules_of(blocks_[id], bytes - moved.bytes);
        if (granules.bytes == 0 || !has_records(records_of_a_cut) || !has_place_for_leaving()) return true;
        if (!storage_.alias(granules.address, to + moved.bytes, granules.bytes)) return false;
        const MemoryBlockId old = cut_out(id, granules);
        blocks_[old].state = State::Leaving;
        leaving_.push_back(old);
        moved.bytes += granules.bytes;
        moved.position = std::max(moved.position, blocks_[old].position);
        return moved.bytes < bytes;
      });
      reserved_ -= moved.bytes;  // at the old addresses
      account(moved.bytes);      // at the new ones
    }
    return moved;
  }

  bool add(std::size_t size, StreamSlot stream, std::size_t)
    requires(!maps)
  {
    blocks_.reserve(8);
    // Small memory comes from regions that others share.
    const std::size_t bytes = size < region_size / 2 ? std::max(region_size, granule_) : round_up(size, granule_);
    if (bytes > options_.capacity - std::min(options_.capacity, reserved_)) return false;
    const MemoryAddress address = storage_.allocate(bytes);
    if (address == 0) return false;
    account(bytes);
    const MemoryBlockId id = blocks_.take();
    blocks_[id].address = address;
    blocks_[id].size = bytes;
    blocks_[id].next = 0;
    add_free(id, stream, 0);
    return true;
  }

  void add_free(MemoryBlockId id, StreamSlot stream, std::uint64_t position) noexcept {
    blocks_[id].state = State::Free;
    blocks_[id].owner = stream;
    blocks_[id].position = position;
    list(id);
  }

  void account(std::size_t bytes) noexcept {
    reserved_ += bytes;
    peak_reserved_ = std::max(peak_reserved_, reserved_);
  }

  void reserve_arena() {
    blocks_.reserve(1);
    arena_size_ = round_up(options_.address_space, granule_);
    arena_ = storage_.reserve(arena_size_);
    const MemoryBlockId id = blocks_.take();
    blocks_[id].address = arena_;
    blocks_[id].size = arena_size_;
    blocks_[id].state = State::Bare;
    list(id);
    first_ = id;  // stays the first: blocks are joined to the one before
  }

  // Gives up to `bytes` of settled memory back to the storage, large blocks first.
  void reclaim(std::size_t bytes) noexcept {
    std::size_t reclaimed = 0;
    settled_.each(blocks_, [&](MemoryBlockId id) {
      if (reclaimed >= bytes) return false;
      reclaimed += give_up(id, bytes - reclaimed);
      return true;
    });
  }

  struct Granules {
    MemoryAddress address = 0;
    std::size_t bytes = 0;
  };

  // The last of the block's whole granules, hardly more than `most` bytes.
  [[nodiscard]] Granules granules_of(const MemoryBlock& block, std::size_t most) const noexcept {
    const MemoryAddress first = round_up(block.address, granule_);
    const MemoryAddress last = round_down(block.address + block.size, granule_);
    if (last <= first) return {};
    const std::size_t bytes = most < last - first ? round_up(most, granule_) : last - first;
    return {last - bytes, bytes};
  }

  // Taking granules out takes two records; listing new memory and handing it out, which may follow, one each.
  static constexpr std::size_t records_of_a_cut = 4;

  // Takes granules out of a listed free block, as a block of their own that is not listed. Two records are in reserve.
  MemoryBlockId cut_out(MemoryBlockId id, const Granules& granules) noexcept {
    FreeList& list = list_of(blocks_[id]);
    list.remove(blocks_, id);
    const std::size_t head = granules.address - blocks_[id].address;
    const MemoryBlockId middle = head == 0 ? id : cut(id, head);
    if (blocks_[middle].size > granules.bytes) list.insert(blocks_, cut(middle, granules.bytes));
    if (head != 0) list.insert(blocks_, id);
    return middle;
  }

  // Of one settled block. Returns how many bytes.
  std::size_t give_up(MemoryBlockId id, std::size_t most) noexcept
    requires maps
  {
    const Granules granules = granules_of(blocks_[id], most);
    if (granules.bytes == 0 || !has_records(records_of_a_cut)) return 0;
    const MemoryBlockId bare = cut_out(id, granules);
    storage_.unmap(granules.address, granules.bytes);
    reserved_ -= granules.bytes;
    blocks_[bare].state = State::Bare;
    list(bare);
    return granules.bytes;
  }

  std::size_t give_up(MemoryBlockId id, std::size_t) noexcept
    requires(!maps)
  {
    const MemoryBlock& block = blocks_[id];
    if (block.previous != 0 || block.next != 0) return 0;  // part of the region is in use
    const std::size_t bytes = block.size;
    settled_.remove(blocks_, id);
    storage_.free(block.address, bytes);
    reserved_ -= bytes;
    blocks_.give_back(id);
    return bytes;
  }

  [[nodiscard]] bool has_place_for_leaving() noexcept {
    try {
      if (leaving_.size() == leaving_.capacity()) leaving_.reserve(2 * leaving_.size() + 16);
      return true;
    } catch (const std::bad_alloc&) {
      return false;
    }
  }

  [[nodiscard]] bool has_records(std::size_t count) noexcept {
    try {
      blocks_.reserve(count);
      return true;
    } catch (const std::bad_alloc&) {
      return false;
    }
  }

  void give_back_all() noexcept
    requires maps
  {
    for (MemoryBlockId id = first_; id != 0;) {  // by runs of blocks that have memory
      const MemoryAddress begin = blocks_[id].address;
      std::size_t bytes = 0;
      for (; id != 0 && blocks_[id].state != State::Bare; id = blocks_[id].next) bytes += blocks_[id].size;
      if (bytes != 0) storage_.unmap(begin, bytes);
      if (id != 0) id = blocks_[id].next;
    }
    if (arena_ != 0) storage_.release(arena_, arena_size_);
  }

  void give_back_all() noexcept
    requires(!maps)
  {
    blocks_.each([this](MemoryBlockId id, const MemoryBlock& first) {
      if (first.previous != 0) return;
      std::size_t bytes = 0;
      for (; id != 0; id = blocks_[id].next) bytes += blocks_[id].size;
      storage_.free(first.address, bytes);
    });
  }

  static constexpr std::size_t region_size = std::size_t{32} << 20U;
  static constexpr std::size_t largest = std::numeric_limits<std::size_t>::max() / 4;  // sums do not overflow

  Storage& storage_;
  const Clock& clock_;
  MemoryPoolOptions options_;
  const std::size_t granule_;
  MemoryBlockTable blocks_;
  FreeList settled_;  // free for every stream
  FreeList bare_;
  std::vector<std::unique_ptr<FreeList>> of_stream_;  // free for one stream until its work is done
  std::vector<BlockedBlock> blocked_;
  std::vector<MemoryBlockId> leaving_;
  MemoryAddress arena_ = 0;  // where addresses are mapped
  MemoryBlockId first_ = 0;  // its first block
  std::size_t arena_size_ = 0;
  std::size_t in_use_ = 0;
  std::size_t padding_ = 0;
  std::size_t reserved_ = 0;
  std::size_t peak_in_use_ = 0;
  std::size_t peak_handed_out_ = 0;  // padding included
  std::size_t peak_reserved_ = 0;
  std::uint64_t live_ = 0;
};

}  // namespace cox
