#pragma once

#include <coxswain/device_handle/base/stream_id.hpp>
#include <coxswain/device_handle/service/post_queue.hpp>
#include <coxswain/runtime/buffer/operation_memory.hpp>
#include <coxswain/runtime/buffer/resolve_window.hpp>
#include <coxswain/runtime/handle/memory_failure.hpp>
#include <coxswain/runtime/memory/access_tracker.hpp>
#include <coxswain/runtime/memory/stream_position.hpp>
#include <coxswain/servers/cuda/driver/fault_report.hpp>
#include <coxswain/servers/cuda/driver/gpu_fault.hpp>
#include <coxswain/servers/cuda/stream/cuda_stream.hpp>
#include <coxswain/servers/cuda/stream/native_stream.hpp>
#include <coxswain/servers/cuda/stream/poison_log.hpp>
#include <coxswain/servers/cuda/stream/stream_queue.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <list>
#include <memory>
#include <source_location>
#include <unordered_map>
#include <utility>
#include <vector>

namespace cox::detail {

struct CudaStreamOptions {
  std::size_t streams = 16;     ///< driver streams of normal priority; as many of high priority, at most 4
  std::size_t in_flight = 512;  ///< maximum pieces in flight per driver stream: its queue must not fill up (T3)
  std::size_t launches_at_a_time = LaunchBatch::max_kernels;  ///< maximum number of kernels in a batch
};

/// The streams of a device, and how far their work has completed. Work is issued at once if possible. Otherwise it
/// stays in its stream's queue until everything it waits for has been issued (the driver can only wait for issued work)
/// and the driver stream has room. Nothing here waits for the device, except synchronize(). Device thread only.
class CudaStreams {
 public:
  CudaStreams(DeviceId device, std::shared_ptr<CudaEvents> events, std::shared_ptr<PostQueue> posts,
              const CudaStreamOptions& options)
      : device_(device),
        events_(std::move(events)),
        posts_(std::move(posts)),
        options_(options),
        poison_log_(PoisonLog::open(device)) {
    natives_.reserve(options_.streams + max_urgent + max_dedicated + max_foreign);  // see add_suspects()
    used_.reserve(natives_.capacity());
    with_launches_.reserve(natives_.capacity());
  }
  CudaStreams(const CudaStreams&) = delete;
  CudaStreams& operator=(const CudaStreams&) = delete;
  ~CudaStreams() { poison_log_->clear(); }

  /// Creates the driver streams and the graphs with which they launch kernels. To create them later the driver may wait
  /// for running kernels, with a lock that others need to launch a collective on the next GPU (T1). Without this call
  /// it is done when a stream is needed, and kernels are launched one by one. Call it first, with the context current.
  /// `empty_kernel`: of load_empty_kernel(); null: kernels are launched one by one. Throws CudaError.
  void open(CUfunction empty_kernel);
  /// Finds or creates the stream. Throws CudaError, std::bad_alloc.
  [[nodiscard]] CudaStream& find_or_create(StreamId id) {
    if (last_ != nullptr && last_->location().stream == id) return *last_;
    return find_or_make(id);
  }
  /// A stream that no StreamId shares, for the device's own work. Throws CudaError, std::bad_alloc.
  [[nodiscard]] std::shared_ptr<CudaStream> create_dedicated_stream();
  /// The StreamId of a stream created outside the library (ComputeClient::use_stream): the same one until end_use().
  /// Throws ServerError Validation if there are too many, std::bad_alloc.
  [[nodiscard]] StreamId use_foreign(CUstream foreign, std::source_location site);
  /// Ends one use. After the last one nothing is issued on that stream any more. Throws ServerError Validation unless
  /// `id` came from use_foreign() and, for the last one, all its work is complete.
  void end_use(StreamId id, std::source_location site);
  /// See StreamClock. The last position known to be complete; polls nothing.
  [[nodiscard]] std::uint64_t completed(StreamSlot slot) const noexcept {
    return timelines_[static_cast<std::size_t>(slot)]->completed();
  }

  /// Acquires a slot for work that is counted like a stream's but is not on any stream. Throws std::bad_alloc.
  [[nodiscard]] StreamSlot acquire_slot();
  void release_slot(StreamSlot slot) noexcept { free_slots_.push_back(slot); }
  [[nodiscard]] CudaTimeline& timeline(StreamSlot slot) noexcept { return *timelines_[static_cast<std::size_t>(slot)]; }
  [[nodiscard]] CudaEvents& events() noexcept { return *events_; }
  [[nodiscard]] const std::shared_ptr<PoisonLog>& poison_log() const noexcept { return poison_log_; }
  /// Batched launches are pending; they refer to buffers without holding a reference.
  [[nodiscard]] bool refers_to_buffers() const noexcept { return has_launches(); }

  /// All positions have been issued, so the driver can wait for them.
  [[nodiscard]] bool issued(const StreamPositions& positions) const noexcept {
    for (const StreamPosition& position : positions)
      if (timelines_[static_cast<std::size_t>(position.stream)]->issued() < position.position) return false;
    return true;
  }
  /// Adds the events after which these positions are complete. Precondition: they have been issued, or a GPU fault has
  /// been found. Throws CudaError (Unhealthy if abandon() has issued the caller but not yet these positions),
  /// std::bad_alloc.
  void add_events(const StreamPositions& positions, std::vector<std::shared_ptr<CudaEvent>>& events);

  /// Adds the event after which all work issued by the queue is complete. Throws CudaError, std::bad_alloc.
  void add_event(StreamQueue& queue, std::vector<std::shared_ptr<CudaEvent>>& events) {
    const StreamPosition issued{queue.slot(), queue.timeline().issued()};
    for_each_event(issued, [&](const std::shared_ptr<CudaEvent>& event) { events.push_back(event); });
  }

  /// Calls `issue(IssueTarget)` after all earlier work of the stream and after `waits`, now or later. Returns the
  /// position of the piece. `ready`: event that must have been reached before the piece is issued. `uses`: memory for
  /// the checks of L14. If the piece would read poisoned memory it is not issued, and fails with IoError Poisoned, or
  /// with LaunchError caused by it. If issuing fails, what the piece should have written is poisoned. Throws what
  /// `issue` throws, CudaError, std::bad_alloc; a piece that is issued later adds its failure to the errors of `stream`
  /// instead.
  template <class F>
  StreamPosition submit(CudaStream& stream, const StreamPositions& waits, const OperationName& name, F&& issue,
                        std::shared_ptr<CudaEvent> ready = nullptr, PieceKind kind = PieceKind::Work,
                        const BufferUses& uses = {}) {
    StreamQueue& queue = stream.queue();
    NativeStream& native = queue.native();
    const LaunchKind launch = launch_kind(issue);
    if (ready != nullptr || !queue.pending.empty() || !has_room(native) || !issued(waits)) [[unlikely]]
      return defer(stream, waits, name, to_issue_later(std::forward<F>(issue)), std::move(ready), kind,
                   OperationMemory(uses, name.site), launch);
    if (kind == PieceKind::Work) wait_for(native, waits);
    const StreamPosition position{queue.slot(), queue.timeline().submit()};
    begin_issue(queue, kind, name, stream);
    issue_checked(stream, uses, name, launch, issue);
    note_launches(native);
    mark_periodically(queue);
    return position;
  }

  /// Issues a piece, with the checks of its memory that submit() describes. The outcome of a batched launch is known
  /// later: see CudaLaunch. `sequence`: the piece's position among the errors of the stream; 0: take the next one.
  template <class Uses, class F>
  void issue_checked(CudaStream& stream, const Uses& uses, const OperationName& name, LaunchKind launch, F&& issue,
                     std::uint64_t sequence = 0) {
    IssueTarget target = stream.queue().target();
    if (uses.empty()) return issue(target);
    target.uses = uses;
    if (!launch.is_batched) target.flush_launches();  // their outcome decides whether this piece may be issued
    std::uint64_t logged = 0;
    bool is_issued = false;
    try {
      if (!poison_log_->is_quiet()) [[unlikely]]
        logged = admit(stream, uses, name, sequence);
      is_issued = true;
      issue(target);
    } catch (...) {
      target.flush_launches();
      if (!poison_log_->withdraw(logged)) return;
      poison_log_->set_failed(
          uses, std::current_exception(),
          launch.is_launch || !is_issued ? MemoryFailure::Contents::Unchanged : MemoryFailure::Contents::Undefined);
      throw;
    }
  }
  /// The error of a piece that would read poisoned memory.
  [[nodiscard]] static std::exception_ptr refused_piece(const OperationName& name, const Location& location,
                                                        const std::exception_ptr& refusal) noexcept;

  /// Records an event after the last piece, if that has been issued. If recording fails, a later waiter for the piece
  /// records an event instead.
  void mark(CudaStream& stream) noexcept {
    const CudaTimeline& timeline = stream.queue().timeline();
    if (timeline.issued() == timeline.submitted() && timeline.last_mark() < timeline.issued())
      try_to_mark(stream.queue());
  }
  /// Calls `then` when all positions are complete: at once if they are. `then` must not throw. Throws std::bad_alloc;
  /// then it is never called.
  void when_complete(const StreamPositions& positions, UniqueFunction<void()> then);
  /// Calls `then`, on any thread, when the device has completed all work that has been issued: at once if it has.
  /// `then` must not throw. Throws CudaError, std::bad_alloc; then it is never called.
  void when_idle(UniqueFunction<void()> then);
  /// Calls `then` when all positions have been issued, so that the driver can wait for them: at once if they have.
  /// `then` must not throw. Throws std::bad_alloc; then it is never called.
  void when_issued(const StreamPositions& positions, UniqueFunction<void()> then);
  /// Issues the work that can be issued now, and passes all launches to the driver. Returns whether there was any.
  bool advance();
  /// Some launches have not been passed to the driver.
  [[nodiscard]] bool has_launches() const noexcept { return !with_launches_.empty(); }
  /// Passes all launches to the driver. Returns whether there were any.
  bool flush_launches() noexcept;
  /// Call when the device thread has been notified: pieces that still wait for the device request a new notification.
  void on_notify() noexcept {
    for (StreamQueue* const queue : pending_queues_)
      if (queue->awaited != nullptr && queue->awaited->known_reached()) queue->awaited = nullptr;
  }
  /// Work waits to be issued, or callbacks wait to be called.
  [[nodiscard]] bool has_pending() const noexcept {
    return !pending_queues_.empty() || !awaiting_.empty() || !to_call_.empty();
  }
  /// Polls all streams for completed work. Records an event on each stream that has issued work but no pending event,
  /// so that a later poll finds more work completed.
  void poll() noexcept;

  /// Blocks until the device has completed all issued work.
  void synchronize() noexcept;
  /// Calls `visit(stream)` for each stream.
  template <class Visit>
  void for_each(Visit&& visit) const {
    for (const auto& [id, stream] : streams_) visit(*stream);
    for (const auto& stream : ended_) visit(*stream);
  }
  /// Issues all pending work, whatever it waits for. For use after a GPU fault: the work is refused, and its waiters
  /// get the error.
  void abandon() noexcept;
  /// Adds the operations that are not known to be complete. Any thread.
  void add_suspects(std::vector<GpuFault::Suspect>& suspects) const;

 private:
  static constexpr std::uint64_t mark_interval = 16;
  // Driver streams of a high priority for the streams of users.
  static constexpr std::size_t max_urgent = 4;
  static constexpr std::size_t max_with_graphs = 16;  // of normal priority: the graphs of one take 0.7 MiB
  static constexpr std::size_t max_dedicated = 3;
  static constexpr std::size_t max_foreign = 64;    // at a time
  static constexpr std::size_t foreign_graphs = 2;  // so many of them launch by graphs

  [[nodiscard]] CudaStream& find_or_make(StreamId id);
  [[nodiscard]] NativeStream& native_for_new(StreamPriority priority);
  NativeStream& make_native(StreamPriority priority);
  void make_foreign();
  [[nodiscard]] std::shared_ptr<CudaStream> make_stream(StreamId id, NativeStream& native);
  void remove(CudaStream& stream) noexcept;
  void forget_idle() noexcept;
  [[nodiscard]] bool has_room(NativeStream& native) {
    const std::uint64_t in_flight = native.timeline().in_flight();
    if (in_flight < options_.in_flight / 2) [[likely]]
      return true;
    if (in_flight % 32 == 0 || in_flight >= options_.in_flight) native.poll();
    return native.timeline().in_flight() < options_.in_flight;
  }
  // After a GPU fault no wait is needed. The piece must still be issued, so that its waiters get the error.
  void wait_for(NativeStream& native, const StreamPositions& waits) {
    if (waits.empty()) return;
    try {
      for (const StreamPosition& wait : waits) wait_for(native, wait);
    } catch (...) {
      if (!gpu_faulted()) throw;
    }
  }
  void wait_for(NativeStream& native, const StreamPosition& wait);
  // Calls `visit(event)` for each event after which the position is complete; returns the position that they cover.
  // `visit` must not give launches to the driver, nor poll: the events may be dropped then.
  // Pieces on a stream complete in order, so one event suffices; otherwise each piece has an event of its own.
  template <class Visit>
  std::uint64_t for_each_event(const StreamPosition& position, Visit&& visit) {
    CudaTimeline& of = timeline(position.stream);
    of.collect_known();
    if (!of.in_order() && of.marks() > 1) of.poll();  // fewer events to wait for
    if (of.completed() >= position.position) return of.completed();
    StreamQueue* const queue = queue_of(position.stream);
    if (!of.in_order()) {
      of.for_each_mark_until(position.position, [&](const CudaTimeline::Mark& mark) { visit(mark.event); });
      return position.position;
    }
    if (queue != nullptr && of.covering(position.position) == nullptr) queue->mark(*events_);
    const CudaTimeline::Mark* const mark = of.covering(position.position);
    if (mark == nullptr) throw_gpu_fault(std::source_location::current());  // abandon() has not issued it yet
    visit(mark->event);
    return mark->position;
  }
  void mark_periodically(StreamQueue& queue) noexcept {
    if (queue.timeline().issued() - queue.timeline().last_mark() >= mark_interval) try_to_mark(queue);
  }
  // For a piece that has been issued: a failure to record the event is not a failure of the piece.
  void try_to_mark(StreamQueue& queue) noexcept {
    try {
      queue.mark(*events_);
    } catch (...) {  // the next call tries again
    }
  }
  void note_launches(NativeStream& native) noexcept {
    if (!native.has_launches()) return;
    if (!std::exchange(native.is_listed, true)) with_launches_.push_back(&native);  // there is room for all
    // Counts the launches of all streams: launches on one stream are not held back while others keep arriving.
    if (++launches_kept_ >= options_.launches_at_a_time) flush_launches();
  }
  StreamPosition defer(CudaStream& stream, const StreamPositions& waits, const OperationName& name, CudaIssue issue,
                       std::shared_ptr<CudaEvent> ready, PieceKind kind, OperationMemory memory, LaunchKind launch);
  template <class Uses>
  [[nodiscard]] std::uint64_t admit(CudaStream& stream, const Uses& uses, const OperationName& name,
                                    std::uint64_t sequence) {
    poison_log_->trim(*this);
    const auto [refusal, number] = poison_log_->admit(uses, stream.location().stream, name.site,
                                                      [&] { return logged_piece(stream, name, sequence); });
    if (refusal == nullptr) return number;
    std::rethrow_exception(refused_piece(name, stream.location(), refusal));
  }
  [[nodiscard]] static std::shared_ptr<LoggedOperation> logged_piece(CudaStream& stream, const OperationName& name,
                                                                     std::uint64_t sequence);
  static void begin_issue(StreamQueue& queue, PieceKind kind, const OperationName& name,
                          const CudaStream& stream) noexcept {
    if (kind == PieceKind::Notice) return queue.timeline().issue_nothing();
    queue.timeline().issue();
    queue.native().note(name, stream.location().stream);
  }
  struct Awaiting {
    StreamPositions positions;
    UniqueFunction<void()> then;
    std::vector<std::shared_ptr<CudaEvent>> events{};  // of the positions, once all have been issued
    bool has_events = false;
    bool until_issued = false;  // call when issued, not when complete
  };
  [[nodiscard]] bool is_complete(Awaiting& awaiting) noexcept;
  bool call_awaiting() noexcept;
  [[nodiscard]] bool can_issue(StreamQueue& queue) noexcept;
  [[nodiscard]] bool try_to_go_on(StreamQueue& queue);
  [[nodiscard]] bool wait_for_first(StreamQueue& queue) noexcept;
  [[nodiscard]] bool completed(const StreamPositions& positions) const noexcept {
    for (const StreamPosition& position : positions)
      if (completed(position.stream) < position.position) return false;
    return true;
  }
  bool issue_pending(StreamQueue& queue);
  void notify_when(StreamQueue& queue, const std::shared_ptr<CudaEvent>& event);
  [[nodiscard]] StreamQueue*& queue_of(StreamSlot slot) noexcept { return queues_[static_cast<std::size_t>(slot)]; }

  const DeviceId device_;
  const std::shared_ptr<CudaEvents> events_;
  const std::shared_ptr<PostQueue> posts_;
  const CudaStreamOptions options_;
  const std::shared_ptr<PoisonLog> poison_log_;
  std::vector<std::unique_ptr<CudaTimeline>> timelines_;  // by slot
  std::vector<StreamQueue*> queues_;                      // by slot; null: the slot belongs to no stream
  std::vector<StreamSlot> free_slots_;                    // capacity for all slots
  std::vector<std::unique_ptr<NativeStream>> natives_;    // capacity for all streams
  std::vector<NativeStream*> used_;                       // those that poll() polls: with users
  std::size_t dedicated_ = 0;                             // number of dedicated ones in natives_
  std::atomic<std::size_t> native_count_{0};              // elements of natives_ that other threads may read
  std::unordered_map<StreamId, std::shared_ptr<CudaStream>> streams_;
  std::vector<std::shared_ptr<CudaStream>> ended_;  // by end_use(), while others refer to them
  std::vector<NativeStream*> with_launches_;        // may have launches not yet passed to the driver
  std::size_t launches_kept_ = 0;  // pieces since all launches were flushed; at least the number of batched launches
  CudaStream* last_ = nullptr;     // the last result of find_or_create()
  std::vector<StreamQueue*> pending_queues_;  // queues with pending work
  std::list<Awaiting> awaiting_;
  std::list<Awaiting> to_call_;  // complete; their callbacks have not begun
  std::size_t sweep_at_ = 1024;
};

}  // namespace cox::detail
