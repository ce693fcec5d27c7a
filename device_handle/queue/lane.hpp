#pragma once

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

/// One client thread's way to one device thread: a single-producer single-consumer queue of closures, built in place in
/// successive cache lines ("cells") of recycled segments, each stamped with the time of its submission.
///
///     segment: [ link | cell | cell cell | cell | end ]--> [ link | cell ...
///                                  ^ one task of two cells
///
/// A cell is published by its stamp, which is stored last and is never 0; so the producer writes nothing but the cell
/// itself, and no word is written by both sides. The producer half is called by the thread that owns the lane, the
/// consumer half by the device thread.
///
/// A stamp is a reading of the clock, and in its low bits how many closures have come since for which it was not read.
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

  // Larger tasks go through a BoxedTask, so that a segment never strands more than a quarter of itself.
  using Boxed = BoxedTask<Pool>;
  static constexpr std::size_t max_cells = std::max<std::size_t>(Segment::capacity / 4, 1);

 public:
  /// A published task, owned by the lane's memory until it is run or discarded.
  struct Item {
    const TaskOps* ops;
    void* object;
    std::uint64_t stream;
    std::uint64_t submitted;  ///< when, by the clock; 0: it was not read for this one
    const Lane* lane;

    /// Of the closure's task, also where it lies in a box.
    [[nodiscard]] const std::type_info* type() const noexcept {
      return ops == &task_ops<Boxed> ? static_cast<const Boxed*>(object)->type() : ops->type;
    }
  };

  /// The consumer's entry for a lane that it attends to.
  struct Attended {
    std::uint64_t stamp;  // of its front, 0 if it had none when it was last read
    Lane* lane;
    std::uint32_t idle_rounds = 0;  // in which it had none
  };

  Lane() = default;
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  /// The stamp of a closure for which the clock was read, and said `clock`.
  [[nodiscard]] static constexpr std::uint64_t stamp_at(std::uint64_t clock) noexcept {
    return clock * stamps_per_tick;
  }

  // ---- producer half -------------------------------------------------------------------------------------------

  /// Begins to append a task of `ops`: returns where it is to be built, or null if that takes more than a few
  /// instructions. Then publish() is called, or abandon() if it cannot be built.
  [[nodiscard, gnu::always_inline]] void* prepare_fast(const TaskOps& ops) noexcept {
    if (ops.cells > max_cells || static_cast<std::size_t>(cursor_end_ - cursor_) < ops.cells) [[unlikely]]
      return nullptr;
    return place_of(ops);
  }

  /// The same, whatever it takes. Throws std::bad_alloc; then nothing was begun.
  [[nodiscard]] void* prepare(const TaskOps& ops, Pool& pool) {
    reserve(queued_as(ops).cells, pool);
    if (ops.cells <= max_cells) return place_of(ops);
    void* const object = Boxed::allocate(ops, pool);
    ::new (place_of(task_ops<Boxed>)) Boxed(ops, object, pool);  // owns nothing before the task is published
    return object;
  }

  /// Appends the task that has been built. `early`: its stamp need only be later than that of the one before it, and
  /// not in the future.
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

  /// Ends what was begun; no task was built at `object`.
  void abandon(const TaskOps& ops, void* object, Pool& pool) noexcept {
    if (ops.cells > max_cells) Boxed::free(ops, object, pool);
  }

  /// Tasks ever pushed. Any thread; exact when the owner is at rest.
  [[nodiscard]] std::uint64_t pushed() const noexcept { return pushed_.load(std::memory_order_relaxed); }

  // ---- consumer half -------------------------------------------------------------------------------------------

  /// The stamp of the oldest task, or 0 if none is published. Gives drained segments back to `pool`.
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
    for (std::uint32_t i = 1; i < ops->cells; ++i) __builtin_prefetch(cell + i);  // all at a time
    prefetch_next(ops->cells);
    const std::uint64_t stamp = cell->stamp.load(std::memory_order_relaxed);
    return {ops, reinterpret_cast<std::byte*>(cell) + ops->offset, cell->stream,
            stamp % stamps_per_tick == 0 ? stamp / stamps_per_tick : 0, this};
  }

  /// The segment being read is not given back when it is drained, but kept until free_segments(): a task in it may be
  /// running on a thread that was given up.
  void strand_segment() noexcept { stranded_ = std::exchange(head_segment_, nullptr); }

  /// Frees the segments; every item has been popped. Any thread, when neither half is in use.
  void free_segments(Pool& pool) noexcept {
    [[maybe_unused]] const std::uint64_t none = front_stamp(pool);
    for (Segment* const segment :
         {std::exchange(head_segment_, nullptr), std::exchange(stranded_, nullptr), std::exchange(spare_, nullptr),
          returned_.exchange(nullptr, std::memory_order_relaxed)}) {
      if (segment != nullptr) pool.free(segment);
    }
  }

 private:
  // Reading the clock may take longer than all else that a push does: where it need not be exact, one push in a few
  // reads it, so that the device thread learns of some how long they have waited; or all, if somebody wants to know.
  [[gnu::always_inline]] std::uint64_t next_stamp(bool early) const noexcept {
    const std::uint64_t following = last_stamp_ + 1;
    if (early && following % stamps_per_tick != 0 && !Platform::timing_requested()) return following;
    const std::uint64_t stamp = stamp_at(early ? Platform::now_early() : Platform::now());
    const std::uint64_t least = stamp_at((following + stamps_per_tick - 1) / stamps_per_tick);
    if (stamp >= least) [[likely]]
      return stamp;
    return stamp_behind(stamp, least);
  }

  // The clock is behind this lane's last stamp: by a little, because it was read early or is coarse, or because it was
  // set back. A clock that counts its readings is read exactly: the lane must not run ahead of it.
  [[gnu::noinline, gnu::cold]] static std::uint64_t stamp_behind(std::uint64_t stamp, std::uint64_t least) noexcept {
    if (Platform::clock_runs()) {
      if (least - stamp <= stamp_at(Platform::clock_tolerance)) return least;
      Platform::distrust_clock();
    }
    return std::max(stamp_at(Platform::now()), least);
  }

  // What the first cell of a task of `ops` says of it.
  static const TaskOps& queued_as(const TaskOps& ops) noexcept { return ops.cells > max_cells ? task_ops<Boxed> : ops; }

  void* place_of(const TaskOps& ops) const noexcept { return reinterpret_cast<std::byte*>(cursor_) + ops.offset; }

  void reserve(std::size_t cells, Pool& pool) {
    if (static_cast<std::size_t>(cursor_end_ - cursor_) < cells) add_segment(pool);
  }

  void add_segment(Pool& pool) {
    if (spare_ == nullptr) spare_ = static_cast<Segment*>(take(pool));
    void* const next_spare = take(pool);           // it may throw: nothing has changed yet
    auto* const segment = ::new (spare_) Segment;  // all its stamps are 0
    spare_ = static_cast<Segment*>(next_spare);
    link_->store(segment, std::memory_order_release);  // pairs with front_stamp(): the stamps are 0
    if (cursor_ != cursor_end_) {
      cursor_->ops = nullptr;
      cursor_->stamp.store(1, std::memory_order_release);  // pairs with front_stamp(): ops
    }
    link_ = &segment->next;
    segment_ = segment;
    cursor_ = segment->cells;
    cursor_end_ = segment->cells + Segment::capacity;
  }

  // The memory of a segment: the one that the consumer drained last, which both sides have in their caches, if it is
  // there.
  void* take(Pool& pool) {
    Segment* const segment = returned_.load(std::memory_order_acquire);  // pairs with retire()
    if (segment == nullptr) return pool.allocate();
    returned_.store(nullptr, std::memory_order_relaxed);
    return segment;
  }

  void retire(Segment* segment, Pool& pool) noexcept {
    if (returned_.load(std::memory_order_relaxed) == nullptr) {
      returned_.store(segment, std::memory_order_release);  // pairs with take(): we are done with it
    } else {
      pool.recycle(segment);
    }
  }

  // The next task is likely to be as large as this one. Large ones are fetched only if they are there: their lines
  // would be taken from under the hands of a producer that is just writing them.
  void prefetch_next(std::uint32_t cells) const noexcept {
    __builtin_prefetch(head_ + 1);
    if (cells <= 2 || static_cast<std::size_t>(head_end_ - head_) < cells) return;
    if (head_->stamp.load(std::memory_order_relaxed) == 0) return;
    for (std::uint32_t i = 2; i < cells; ++i) __builtin_prefetch(head_ + i);
  }

  // The consumer has the lines of a recycled segment in its cache. While one segment is being filled, those of the next
  // are fetched for writing, a line for each line written, so that no store has to wait for them.
  void prefetch_spare(const Cell* cell, std::uint32_t cells) const noexcept {
    const Cell* const ahead = spare_->cells + (cell - segment_->cells);
    for (std::uint32_t i = 0; i < cells; ++i) Platform::prefetch_for_write(ahead + i);
  }

  atomic<Segment*> first_{nullptr};

  // Written by the producer alone, on a line of its own: the consumer must not slow it down.
  alignas(cache_line) Cell* cursor_ = nullptr;
  Cell* cursor_end_ = nullptr;
  atomic<Segment*>* link_ = &first_;
  Segment* segment_ = nullptr;
  Segment* spare_ = nullptr;  // memory for the next one; nothing is built in it yet
  std::uint64_t last_stamp_ = 0;
  atomic<std::uint64_t> pushed_{0};

 public:
  /// Non-zero while the owner is between its check that the mailbox is open and the end of its push.
  atomic<std::uint32_t> busy{0};
  /// Closures the owner may still push before it must ask for more; see Mailbox.
  std::uint32_t credits = 0;
  /// It goes back to the mailbox at the end of the push.
  bool on_loan = false;

  // Read by the producer at every push, written rarely: when the consumer starts or stops attending to the lane, and
  // when it has drained a segment.
  alignas(cache_line) atomic<std::uint32_t> attended{0};  // written by the consumer alone
  atomic<std::uint32_t> arrived{0};                       // 1: among the arrivals, or being put there
  Lane* next_arrival = nullptr;

 private:
  atomic<Segment*> returned_{nullptr};  // drained; put there by the consumer, taken by the producer

  // The consumer's own, written at every pop.
  alignas(cache_line) Cell* head_ = nullptr;
  Cell* head_end_ = nullptr;
  atomic<Segment*>* head_link_ = &first_;
  Segment* head_segment_ = nullptr;
  Segment* stranded_ = nullptr;

 public:
  bool in_round = false;  // it is in the consumer's list of lanes to look at

  // Written when a thread takes or leaves the lane.
  alignas(cache_line) atomic<std::uint32_t> owned{1};
  atomic<std::uint32_t> owner{0};  // the thread that took it last, by the system's number; for traces
  Lane* next = nullptr;
  std::size_t number = 0;            // of lanes of the mailbox up to and including this one
  std::vector<Attended> list_space;  // for the consumer's list; see BasicMailbox::link()
};

}  // namespace cox
