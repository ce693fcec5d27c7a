#pragma once

#include <coxswain/device_handle/queue/boxed_task.hpp>
#include <coxswain/device_handle/queue/task.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>
#include <vector>

namespace cox {

/// The queue from one client thread to one device thread: single producer, single consumer. Closures are built in place
/// in successive cache lines ("cells") of recycled segments, and each is stamped with the time of its submission.
///
///     segment: [ link | cell | cell cell | cell | end ]--> [ link | cell ...
///                                  ^ one task of two cells
///
/// A cell is published by its stamp, which is stored last and is never 0. So the producer writes nothing but the cell
/// itself, and no word is written by both sides. The thread that owns the lane calls the producer half, the device
/// thread the consumer half.
///
/// A stamp is a reading of the clock. Its low bits count the closures pushed since that reading for which the clock was
/// not read.
template <class Platform>
class Lane {
  template <class T>
  using atomic = typename Platform::template atomic<T>;
  using Pool = typename Platform::BlockPool;

  struct alignas(cache_line) Cell {
    atomic<std::uint64_t> stamp{0};  // 0: not published
    const TaskOps* ops;              // nullptr: the rest of the segment is unused
    std::uint64_t stream;
    // the task follows, 40 bytes of it in this cell
  };
  static_assert(sizeof(Cell) == cache_line);
  static_assert(sizeof(atomic<std::uint64_t>) + sizeof(const TaskOps*) + sizeof(std::uint64_t) == cell_header);

  struct alignas(cache_line) Segment {
    static constexpr std::size_t capacity = Pool::block_bytes / cache_line - 1;
    atomic<Segment*> next{nullptr};
    Cell cells[capacity];
  };
  static_assert(sizeof(Segment) <= Pool::block_bytes);

  static constexpr std::uint64_t stamps_per_tick = Platform::stamps_per_tick;
  static_assert(std::has_single_bit(stamps_per_tick));

  // Larger tasks are put into a BoxedTask, so that a segment never wastes more than a quarter of its cells.
  using Boxed = BoxedTask<Pool>;
  static constexpr std::size_t max_cells = std::max<std::size_t>(Segment::capacity / 4, 1);

 public:
  /// A published task. The lane's memory owns it until it is run or discarded.
  struct Item {
    const TaskOps* ops;
    void* object;
    std::uint64_t stream;
    std::uint64_t submitted;  ///< clock reading at submission; 0: the clock was not read
    const Lane* lane;

    /// The type of the closure's task, also if the task is boxed.
    [[nodiscard]] const std::type_info* type() const noexcept {
      return ops == &task_ops<Boxed> ? static_cast<const Boxed*>(object)->type() : ops->type;
    }
  };

  /// The consumer's entry for a lane that it attends to (polls in every round).
  struct Attended {
    std::uint64_t stamp;  // of the lane's front at the last read; 0: the lane was empty
    Lane* lane;
    std::uint32_t idle_rounds = 0;  // consecutive rounds in which the lane was empty
  };

  Lane() = default;
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  /// The stamp of a closure for which the clock was read, with the result `clock`.
  [[nodiscard]] static constexpr std::uint64_t stamp_at(std::uint64_t clock) noexcept {
    return clock * stamps_per_tick;
  }

  // ---- producer half -------------------------------------------------------------------------------------------

  /// Begins to append a task of `ops`. Returns the address at which the caller builds the task, or null if this needs
  /// more than a few instructions (then the caller uses prepare()). The caller then builds the task and calls
  /// publish(), or abandon() if it cannot be built.
  [[nodiscard, gnu::always_inline]] void* prepare_fast(const TaskOps& ops) noexcept {
    if (ops.cells > max_cells || static_cast<std::size_t>(cursor_end_ - cursor_) < ops.cells) [[unlikely]]
      return nullptr;
    return place_of(ops);
  }

  /// The slow path of prepare_fast(): may allocate. Throws std::bad_alloc; then nothing was begun.
  [[nodiscard]] void* prepare(const TaskOps& ops, Pool& pool) {
    reserve(queued_as(ops).cells, pool);
    if (ops.cells <= max_cells) return place_of(ops);
    void* const object = Boxed::allocate(ops, pool);
    ::new (place_of(task_ops<Boxed>)) Boxed(ops, object, pool);  // owns nothing before the task is published
    return object;
  }

  /// Publishes the task that has been built. `early`: the stamp need only be later than the previous stamp of this lane
  /// and not in the future.
  [[gnu::always_inline]] void publish(const TaskOps& ops, std::uint64_t stream, bool early) noexcept {
    const TaskOps& queued = queued_as(ops);
    Cell* const cell = cursor_;
    cell->ops = &queued;
    cell->stream = stream;
    last_stamp_ = next_stamp(early);
    cell->stamp.store(last_stamp_, std::memory_order_release);  // pairs with front_stamp(): the task is built
    cursor_ = cell + queued.cells;
    prefetch_spare(cell, queued.cells);
    pushed_.store(pushed_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }

  /// Cancels prepare() or prepare_fast(); no task was built at `object`.
  void abandon(const TaskOps& ops, void* object, Pool& pool) noexcept {
    if (ops.cells > max_cells) Boxed::free(ops, object, pool);
  }

  /// Number of tasks ever pushed. Any thread; exact when the owner is not pushing.
  [[nodiscard]] std::uint64_t pushed() const noexcept { return pushed_.load(std::memory_order_relaxed); }

  // ---- consumer half -------------------------------------------------------------------------------------------

  /// Returns the stamp of the oldest task, or 0 if none is published. Recycles drained segments through `pool`.
  [[nodiscard]] std::uint64_t front_stamp(Pool& pool) noexcept {
    for (;;) {
      if (head_ != head_end_) {
        const std::uint64_t stamp = head_->stamp.load(std::memory_order_acquire);  // pairs with publish()
        if (stamp == 0 || head_->ops != nullptr) return stamp;
      }
      Segment* const segment = head_link_->load(std::memory_order_acquire);  // pairs with add_segment()
      if (segment == nullptr) return 0;
      if (head_segment_ != nullptr) retire(head_segment_, pool);
      head_segment_ = segment;
      head_link_ = &segment->next;
      head_ = segment->cells;
      head_end_ = segment->cells + Segment::capacity;
    }
  }

  /// Removes the oldest task; front_stamp() has just returned non-zero. The item's memory stays valid until the next
  /// call of front_stamp().
  [[nodiscard]] Item pop() noexcept {
    Cell* const cell = head_;
    const TaskOps* const ops = cell->ops;
    head_ = cell + ops->cells;
    for (std::uint32_t i = 1; i < ops->cells; ++i) __builtin_prefetch(cell + i);  // all lines at the same time
    prefetch_next(ops->cells);
    const std::uint64_t stamp = cell->stamp.load(std::memory_order_relaxed);
    return {ops, reinterpret_cast<std::byte*>(cell) + ops->offset, cell->stream,
            stamp % stamps_per_tick == 0 ? stamp / stamps_per_tick : 0, this};
  }

  /// Keeps the segment that is being read until free_segments() instead of recycling it when it is drained. A task in
  /// it may still be running on a device thread that was abandoned.
  void strand_segment() noexcept { stranded_ = std::exchange(head_segment_, nullptr); }

  /// Frees the segments; every item has been popped. Any thread, if no thread uses either half.
  void free_segments(Pool& pool) noexcept {
    [[maybe_unused]] const std::uint64_t none = front_stamp(pool);
    for (Segment* const segment :
         {std::exchange(head_segment_, nullptr), std::exchange(stranded_, nullptr), std::exchange(spare_, nullptr),
          returned_.exchange(nullptr, std::memory_order_relaxed)}) {
      if (segment != nullptr) pool.free(segment);
    }
  }

 private:
  // Reading the clock may take longer than the rest of a push. Where the stamp need not be exact, one push in
  // `stamps_per_tick` reads it, so that the device thread can measure the wait of some tasks. If timing was requested,
  // every push reads it.
  [[gnu::always_inline]] std::uint64_t next_stamp(bool early) const noexcept {
    const std::uint64_t following = last_stamp_ + 1;
    if (early && following % stamps_per_tick != 0 && !Platform::timing_requested()) return following;
    const std::uint64_t stamp = stamp_at(early ? Platform::now_early() : Platform::now());
    const std::uint64_t least = stamp_at((following + stamps_per_tick - 1) / stamps_per_tick);
    if (stamp >= least) [[likely]]
      return stamp;
    return stamp_behind(stamp, least);
  }

  // The clock is behind this lane's last stamp: by a little, because it was read early or is coarse, or by more,
  // because it was set back. A clock that only counts its readings is read exactly: the lane must not run ahead of it.
  [[gnu::noinline, gnu::cold]] static std::uint64_t stamp_behind(std::uint64_t stamp, std::uint64_t least) noexcept {
    if (Platform::clock_runs()) {
      if (least - stamp <= stamp_at(Platform::clock_tolerance)) return least;
      Platform::distrust_clock();
    }
    return std::max(stamp_at(Platform::now()), least);
  }

  // The operations that are stored in the first cell of a task of `ops`.
  static const TaskOps& queued_as(const TaskOps& ops) noexcept { return ops.cells > max_cells ? task_ops<Boxed> : ops; }

  void* place_of(const TaskOps& ops) const noexcept { return reinterpret_cast<std::byte*>(cursor_) + ops.offset; }

  void reserve(std::size_t cells, Pool& pool) {
    if (static_cast<std::size_t>(cursor_end_ - cursor_) < cells) add_segment(pool);
  }

  void add_segment(Pool& pool) {
    if (spare_ == nullptr) spare_ = static_cast<Segment*>(take(pool));
    void* const next_spare = take(pool);           // may throw: nothing has changed yet
    auto* const segment = ::new (spare_) Segment;  // all its stamps are 0
    spare_ = static_cast<Segment*>(next_spare);
    link_->store(segment, std::memory_order_release);  // pairs with front_stamp(): the stamps are 0
    if (cursor_ != cursor_end_) {
      cursor_->ops = nullptr;
      cursor_->stamp.store(1, std::memory_order_release);  // pairs with front_stamp(): ops is null
    }
    link_ = &segment->next;
    segment_ = segment;
    cursor_ = segment->cells;
    cursor_end_ = segment->cells + Segment::capacity;
  }

  // Memory for a segment. Prefers the segment that the consumer drained last, which is in the caches of both sides.
  void* take(Pool& pool) {
    Segment* const segment = returned_.load(std::memory_order_acquire);  // pairs with retire()
    if (segment == nullptr) return pool.allocate();
    returned_.store(nullptr, std::memory_order_relaxed);
    return segment;
  }

  void retire(Segment* segment, Pool& pool) noexcept {
    if (returned_.load(std::memory_order_relaxed) == nullptr) {
      returned_.store(segment, std::memory_order_release);  // pairs with take(): the consumer no longer uses it
    } else {
      pool.recycle(segment);
    }
  }

  // The next task is likely to be as large as this one. The lines of a large task are prefetched only if it is
  // published: otherwise the prefetch would take them away from a producer that is still writing them.
  void prefetch_next(std::uint32_t cells) const noexcept {
    __builtin_prefetch(head_ + 1);
    if (cells <= 2 || static_cast<std::size_t>(head_end_ - head_) < cells) return;
    if (head_->stamp.load(std::memory_order_relaxed) == 0) return;
    for (std::uint32_t i = 2; i < cells; ++i) __builtin_prefetch(head_ + i);
  }

  // The lines of a recycled segment are in the consumer's cache. For each line written in the current segment, the same
  // line of the next segment is prefetched for writing, so that no store has to wait for it.
  void prefetch_spare(const Cell* cell, std::uint32_t cells) const noexcept {
    const Cell* const ahead = spare_->cells + (cell - segment_->cells);
    for (std::uint32_t i = 0; i < cells; ++i) Platform::prefetch_for_write(ahead + i);
  }

  atomic<Segment*> first_{nullptr};

  // Written by the producer alone, on a cache line of its own, so that the consumer does not slow it down.
  alignas(cache_line) Cell* cursor_ = nullptr;
  Cell* cursor_end_ = nullptr;
  atomic<Segment*>* link_ = &first_;
  Segment* segment_ = nullptr;
  Segment* spare_ = nullptr;  // memory for the next segment; nothing is built in it yet
  std::uint64_t last_stamp_ = 0;
  atomic<std::uint64_t> pushed_{0};

 public:
  /// Non-zero while the owner is between its check that the mailbox is open and the end of its push.
  atomic<std::uint32_t> busy{0};
  /// Closures that the owner may push before it must acquire more; see Credits.
  std::uint32_t credits = 0;
  /// True: the lane was acquired for one push only (a thread that is ending keeps no lane), and returns to the mailbox
  /// at the end of that push.
  bool on_loan = false;

  // Read by the producer at every push. Rarely written: when the consumer starts or stops attending to the lane, and
  // when it has drained a segment.
  alignas(cache_line) atomic<std::uint32_t> attended{0};  // written by the consumer alone
  atomic<std::uint32_t> arrived{0};                       // 1: in the list of arrivals, or being added to it
  Lane* next_arrival = nullptr;

 private:
  atomic<Segment*> returned_{nullptr};  // drained; stored by the consumer, taken by the producer

  // Owned by the consumer, written at every pop.
  alignas(cache_line) Cell* head_ = nullptr;
  Cell* head_end_ = nullptr;
  atomic<Segment*>* head_link_ = &first_;
  Segment* head_segment_ = nullptr;
  Segment* stranded_ = nullptr;

 public:
  bool in_round = false;  // the lane is in the consumer's list of lanes to poll

  // Written when a thread acquires or releases the lane.
  alignas(cache_line) atomic<std::uint32_t> owned{1};
  atomic<std::uint32_t> owner{0};  // the last thread that acquired it, by the system's number; for traces
  Lane* next = nullptr;
  std::size_t number = 0;            // the number of lanes of the mailbox up to and including this one
  std::vector<Attended> list_space;  // memory for the consumer's list; see LaneList
};

}  // namespace cox
