#pragma once

#include <coxswain/runtime/handle/memory_usage.hpp>
#include <coxswain/runtime/memory/block_map.hpp>
#include <coxswain/runtime/memory/granularity.hpp>
#include <coxswain/runtime/memory/mapped_backing.hpp>
#include <coxswain/runtime/memory/memory_block.hpp>
#include <coxswain/runtime/memory/memory_report.hpp>
#include <coxswain/runtime/memory/memory_storage.hpp>
#include <coxswain/runtime/memory/region_backing.hpp>
#include <coxswain/runtime/memory/reserved_bytes.hpp>
#include <coxswain/runtime/memory/stream_position.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

namespace cox {

/// The progress of the streams of a device. `completed(stream)` is the position that the stream is known to have
/// reached. It must be inexpensive: the pool calls it for every stream and for every block that waits for streams. The
/// server advances it: on a GPU CudaStreams::poll(), before allocations and in syncs; a host stream when a piece of
/// work ends.
template <class C>
concept StreamClock = requires(const C& clock, StreamSlot stream) {
  { clock.completed(stream) } noexcept -> std::same_as<std::uint64_t>;
};

struct MemoryPoolOptions {
  std::size_t alignment = 512;  ///< bytes, a power of two, at most 64 KiB; divides the storage's granularity
  std::size_t capacity = std::numeric_limits<std::size_t>::max();  ///< bytes that may be taken from the storage
  /// Bytes of the address range, for storage that maps memory. It is larger than the memory, so that gaps between
  /// blocks cost addresses only.
  std::size_t address_space = std::size_t{1} << 40U;
  /// Memory that may be taken beyond the peak in use before free memory elsewhere is remapped instead. In per mille of
  /// the peak.
  std::size_t slack = 20;
};

/// Whether an allocation may do more than take free memory.
enum class Growth : std::uint8_t {
  Allowed,
  Forbidden,  ///< Does not call the storage or require a wait for another stream; used in graph captures.
};

/// Memory that a pool has handed out.
struct MemoryAllocation {
  MemoryBlockId block = 0;
  std::uint32_t generation = 0;  ///< of the block; distinguishes this allocation from later ones
  MemoryAddress address = 0;
  std::size_t size = 0;  ///< bytes, a multiple of the alignment
  /// The last use of the memory before this allocation. Work on any other stream must wait for it before it accesses
  /// the memory.
  StreamPosition last_use;
};

namespace detail {

template <class Storage>
struct BackingOf {
  using Type = RegionBacking<Storage>;
};
template <MappingStorage Storage>
struct BackingOf<Storage> {
  using Type = MappedBacking<Storage>;
};

}  // namespace detail

/// The memory of one device and kind, for all its streams. Allocating and freeing take constant time. Not thread-safe:
/// device thread only.
///
/// Memory is freed in stream order: queued work may still use it. Until that work has completed, only its stream may
/// allocate the memory again, which is possible at once; afterwards every stream may. If work on several streams still
/// uses the memory, no stream may allocate it until all of it has completed (law L11). BlockMap has a drawing of the
/// states.
///
/// An allocation that does not fit into free memory is mapped at new addresses. If the pool would then hold more memory
/// than `slack` allows, it uses free granules from elsewhere: granules that no work uses any more are unmapped first;
/// granules that only the work of the allocating stream still uses are moved (MappedBacking). So free memory can always
/// be used, however scattered it is. RegionBacking does neither.
template <MemoryStorage Storage, StreamClock Clock>
class MemoryPool {
  using State = MemoryBlock::State;
  using Backing = typename detail::BackingOf<Storage>::Type;

 public:
  MemoryPool(Storage& storage, const Clock& clock, const MemoryPoolOptions& options)
      : clock_(clock),
        unit_{options.alignment},
        granule_{storage.granularity()},
        slack_(options.slack),
        reserved_{.capacity = options.capacity},
        blocks_(options.alignment, storage.granularity()),
        backing_(storage, blocks_, reserved_, options.address_space) {}
  MemoryPool(const MemoryPool&) = delete;
  MemoryPool& operator=(const MemoryPool&) = delete;

  /// Returns all memory to the storage. Precondition: no work uses the memory.
  ~MemoryPool() = default;

  /// Allocates at least `bytes` > 0 bytes for first use on `stream`; no_stream: for first use on any stream.
  /// Growth::Forbidden takes only memory that is free for `stream` or for all. Returns std::nullopt if the device has
  /// no memory left, even after free memory of all streams has been considered; report() shows why. Throws
  /// std::bad_alloc if there is no host memory for the records of the pool; then nothing is allocated.
  [[nodiscard]] std::optional<MemoryAllocation> allocate(std::size_t bytes, StreamSlot stream, MemoryLabel label = {},
                                                         Growth growth = Growth::Allowed) {
    if (bytes > std::min(reserved_.capacity, largest)) return std::nullopt;
    const std::size_t size = unit_.round_up(bytes);
    blocks_.add_stream(stream);
    blocks_.reserve(8);
    MemoryBlockId id = blocks_.take_cached(stream, size);
    if (id == 0) {
      id = blocks_.find(stream, size);
      if (id == 0 && blocks_.list_all_cached()) id = blocks_.find(stream, size);
      if (id == 0 && share_completed()) id = blocks_.find(stream, size);
      if (id == 0 && stream != no_stream && blocks_.merge_shared(stream, size)) id = blocks_.find(stream, size);
      if (id == 0 && growth == Growth::Allowed && grow(size, stream)) id = blocks_.find(stream, size);
      if (id == 0) id = blocks_.search(stream, size);
      if (id == 0 && growth == Growth::Allowed) id = blocks_.search_others(size);
      if (id == 0) return std::nullopt;
      blocks_.take(id, size);
    }
    return hand_out(id, bytes, label);
  }

  /// Frees an allocation. `uses`: the last use on each stream that may not have completed, including `last_use` if no
  /// work has waited for it; empty: no work uses the memory. Throws std::bad_alloc if there is no host memory for the
  /// records of the pool; the allocation then stays live, and the call may be repeated.
  void free(const MemoryAllocation& allocation, std::span<const StreamPosition> uses) {
    const MemoryBlockId id = allocation.block;
    if (uses.size() == 1) {
      blocks_.add_stream(uses.front().stream);
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
    } else if (uses.size() == 1) {
      blocks_.cache(id, uses.front().stream, uses.front().position);
    } else {
      blocks_.cache(id, no_stream, 0);
    }
  }

  /// Whether `allocation` has not been freed.
  [[nodiscard]] bool is_live(const MemoryAllocation& allocation) const noexcept {
    const MemoryBlock& block = blocks_[allocation.block];
    return block.state == State::Live && block.generation == allocation.generation;
  }

  /// Returns free memory that no work uses any more to the storage.
  void cleanup() noexcept {
    blocks_.list_all_cached();
    share_completed();
    backing_.unmap_passed(clock_);
    backing_.reclaim(std::numeric_limits<std::size_t>::max());
    backing_.trim();
  }

  /// Sets how many bytes may be taken from the storage. If more are reserved already, no more are taken until they fit.
  /// Free memory can still be allocated then, up to the capacity for one allocation.
  void set_capacity(std::size_t bytes) noexcept { reserved_.capacity = bytes; }
  [[nodiscard]] std::size_t capacity() const noexcept { return reserved_.capacity; }

  /// Bytes taken from the storage, free ones included.
  [[nodiscard]] std::size_t reserved() const noexcept { return reserved_.now; }
  /// Allocations that have not been freed.
  [[nodiscard]] std::uint64_t live() const noexcept { return live_; }

  [[nodiscard]] MemoryUsage usage() const noexcept {
    return {.number_allocs = live_,
            .bytes_in_use = in_use_,
            .bytes_padding = padding_,
            .bytes_reserved = reserved_.now,
            .peak_bytes_in_use = peak_in_use_,
            .peak_bytes_reserved = reserved_.peak};
  }

  /// Usage, free memory and owners. Visits every block.
  [[nodiscard]] MemoryReport report() const {
    MemoryReport report;
    report.usage = usage();
    report.capacity = reserved_.capacity;
    blocks_.for_each([&report](MemoryBlockId, const MemoryBlock& block) { report.add(block); });
    return report;
  }

  /// Checks all invariants of the blocks and of the counters; for tests. Visits every block.
  [[nodiscard]] bool consistent() const {
    std::size_t in_use = 0;
    std::size_t padding = 0;
    std::size_t reserved = 0;
    blocks_.for_each([&](MemoryBlockId, const MemoryBlock& block) {
      if (block.state != State::Unmapped && block.state != State::Remapped) reserved += block.size;
      if (block.state != State::Live) return;
      in_use += block.size - block.padding;
      padding += block.padding;
    });
    return blocks_.consistent() && in_use == in_use_ && padding == padding_ && reserved == reserved_.now;
  }

 private:
  struct BlockedBlock {
    MemoryBlockId id;
    std::vector<StreamPosition> uses;
  };

  // Makes an unlisted block a live allocation.
  MemoryAllocation hand_out(MemoryBlockId id, std::size_t bytes, MemoryLabel label) noexcept {
    MemoryBlock& block = blocks_[id];
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

  // Makes memory whose uses have completed free for all streams. Returns whether there was any.
  bool share_completed() noexcept {
    bool found = blocks_.share_completed(clock_);
    std::erase_if(blocked_, [&](const BlockedBlock& blocked) {
      const bool done = std::ranges::all_of(
          blocked.uses, [&](const StreamPosition& use) { return clock_.completed(use.stream) >= use.position; });
      if (done) {
        found = true;
        blocks_.make_free(blocked.id, no_stream, 0);
      }
      return done;
    });
    return found;
  }

  // Makes `size` contiguous bytes free for `stream`: reclaims, moves or maps memory.
  bool grow(std::size_t size, StreamSlot stream) {
    backing_.unmap_passed(clock_);
    const std::size_t missing = granule_.round_up(size);
    const std::size_t wanted = std::max(peak_handed_out_, in_use_ + padding_ + size);
    // Saturates at the capacity: the sum may overflow.
    const std::size_t allowance = wanted / 1000 * slack_ + 2 * granule_.bytes;
    const std::size_t limit = wanted >= reserved_.capacity || allowance > reserved_.capacity - wanted
                                  ? reserved_.capacity
                                  : wanted + allowance;
    if (reserved_.now + missing > limit) backing_.reclaim(reserved_.now + missing - limit);
    if (backing_.grow(size, stream, limit)) return true;
    backing_.reclaim(missing);
    return backing_.grow(size, stream, limit);
  }

  static constexpr std::size_t largest = std::numeric_limits<std::size_t>::max() / 2;  // sums do not overflow

  const Clock& clock_;
  const Granularity unit_;
  const Granularity granule_;
  const std::size_t slack_;
  ReservedBytes reserved_;
  BlockMap blocks_;
  Backing backing_;
  std::vector<BlockedBlock> blocked_;
  std::size_t in_use_ = 0;
  std::size_t padding_ = 0;
  std::size_t peak_in_use_ = 0;
  std::size_t peak_handed_out_ = 0;  // padding included
  std::uint64_t live_ = 0;
};

}  // namespace cox
