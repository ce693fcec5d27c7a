#pragma once

#include <coxswain/device_handle/service/post_queue.hpp>
#include <coxswain/device_handle/service/thread_context.hpp>
#include <coxswain/runtime/base/caller.hpp>
#include <coxswain/runtime/base/location.hpp>
#include <coxswain/runtime/buffer/captured_writes.hpp>
#include <coxswain/runtime/buffer/operation_memory.hpp>
#include <coxswain/runtime/buffer/resolve_window.hpp>
#include <coxswain/runtime/client/graph_id.hpp>
#include <coxswain/runtime/client/server_utilities.hpp>
#include <coxswain/runtime/communication/membership_epoch.hpp>
#include <coxswain/runtime/error/io_error.hpp>
#include <coxswain/runtime/error/server_operation.hpp>
#include <coxswain/runtime/handle/managed_memory.hpp>
#include <coxswain/runtime/launch/submit_mode.hpp>
#include <coxswain/runtime/memory/borrowed_memory.hpp>
#include <coxswain/runtime/memory/device_buffer.hpp>
#include <coxswain/runtime/telemetry/metrics.hpp>
#include <coxswain/servers/cuda/collective/cuda_ranks.hpp>
#include <coxswain/servers/cuda/copy/copy_engine.hpp>
#include <coxswain/servers/cuda/copy/cuda_transfers.hpp>
#include <coxswain/servers/cuda/device/cuda_context.hpp>
#include <coxswain/servers/cuda/driver/driver_object.hpp>
#include <coxswain/servers/cuda/driver/fault_report.hpp>
#include <coxswain/servers/cuda/event/cuda_poller.hpp>
#include <coxswain/servers/cuda/event/event_watch.hpp>
#include <coxswain/servers/cuda/memory/cuda_memory.hpp>
#include <coxswain/servers/cuda/memory/pinned_storage.hpp>
#include <coxswain/servers/cuda/memory/small_read_slots.hpp>
#include <coxswain/servers/cuda/stream/cuda_streams.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

namespace cox::detail {

/// A range of device memory.
struct CudaRange {
  CUdeviceptr address = 0;
  std::size_t size = 0;  ///< bytes
};

/// What a CudaServer owns: streams, memory, copy threads, and the order of work. Device thread only.
class CudaDevice final : private BatchHook {
 public:
  using Facts = std::shared_ptr<const ServerFacts>;

  /// `thread`: the device's thread; null if attach() sets it later.
  CudaDevice(Facts facts, std::shared_ptr<CudaContext> context, ThreadContext* thread);
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;
  /// Blocks until all work has run; reports errors that no call has taken.
  ~CudaDevice();

  [[nodiscard]] const Facts& facts() const noexcept { return facts_; }
  /// Makes the device's context current on this thread and returns the caller's stream. Call first in every operation.
  /// Throws CudaError, std::bad_alloc.
  [[nodiscard]] CudaStream& enter(const Caller& caller) {
    if (!gpu_faulted()) [[likely]]                              // after a fault driver calls would fail
      COX_CUDA_CHECK(context_set_current(context_->native()));  // the operation reports a fault found here
    return streams_.find_or_create(caller.stream);
  }
  /// Sets the thread on which all functions are called from now on. Call once.
  void attach(ThreadContext& thread);
  /// While the returned object lives, calls that the device thread posts to itself do not notify it: run_calls() makes
  /// them.
  [[nodiscard]] PostQueue::HoldNotify hold_notify() noexcept { return PostQueue::HoldNotify(*posts_); }
  /// Makes the posted calls now, and issues the work that they allow. Without this they would run after all tasks that
  /// clients have submitted in the meantime. Errors are reported as task errors, as for posted calls.
  void run_calls() noexcept;
  /// Submits the rank's prepared collectives to the sequencer: now, or, if Batched, at the end of this thread's batch
  /// of tasks, together with those prepared until then (earlier if the batch is full). Operations that are released by
  /// this are launched by run_calls().
  void submit_to_sequencer(CudaRank& rank, SubmitMode when) noexcept;
  /// Passes the batched launches to the driver: now, or, if Batched, at the end of this thread's batch of tasks,
  /// together with the launches until then.
  void flush_launches(SubmitMode when) noexcept;
  [[nodiscard]] EventWatch& watch() noexcept { return watch_; }
  [[nodiscard]] CudaStreams& streams() noexcept { return streams_; }
  [[nodiscard]] CudaTransfers& transfers() noexcept { return transfers_; }
  [[nodiscard]] CudaRanks& ranks() noexcept { return ranks_; }
  [[nodiscard]] CudaEvents& events() noexcept { return *events_; }
  [[nodiscard]] CudaEvents& timed_events() noexcept { return *timed_events_; }
  [[nodiscard]] CudaMemory& memory() noexcept { return *memory_; }
  [[nodiscard]] CudaPinnedMemory& pinned() noexcept { return *pinned_; }
  [[nodiscard]] SmallReadSlots& small_reads() noexcept { return small_reads_; }
  /// Page-locked memory for large reads, used by the copy threads. A separate pool, so that the device thread does not
  /// wait while it grows.
  [[nodiscard]] const std::shared_ptr<CudaPinnedMemory>& results() const noexcept { return results_; }
  [[nodiscard]] Location location(const Caller& caller) const { return {facts_->owner.device, caller.stream}; }

  /// Storage for new memory of the caller's stream. Throws IoError BufferTooBig, OutOfMemory with a report of all
  /// memory, or OutOfHostMemory; ServerError Graph if a capture would have to grow the pool.
  [[nodiscard]] CaptureMemory::Buffer allocate(std::size_t size, const Caller& caller);
  /// The storage of memory that `owner` has lent. Throws std::bad_alloc.
  [[nodiscard]] CudaMemory::Buffer borrow(CUdeviceptr address, std::size_t bytes,
                                          std::shared_ptr<BorrowedMemory> owner) {
    owner->take(posts_);
    return memory_->borrow(address, bytes, std::move(owner));
  }
  /// Whether it is memory of this device that is not borrowed.
  [[nodiscard]] bool is_pooled(const MemoryView& memory) const noexcept {
    if (!memory || memory.owner() != facts_->owner) return false;
    const MemoryResource* const resource = memory.state().resource.get();
    return resource != nullptr && static_cast<const DeviceBuffer&>(*resource).home != DeviceBuffer::Home::Borrowed;
  }
  /// Keeps memory until the device is shut down, since work that no stream waits for may still use it. Does nothing
  /// unless is_pooled().
  void keep(const MemoryView& memory) noexcept;
  /// Page-locked host memory. Throws IoError like allocate().
  [[nodiscard]] Bytes allocate_pinned(std::size_t size, const Caller& caller);
  /// The address range of the window. Adds its buffer to `uses`, which must not outlive the memory that the window
  /// refers to. Throws IoError like resolve_window(); ServerError: Graph if a capture of another stream writes the
  /// buffer, Validation for a write of kept memory outside of an update.
  [[nodiscard]] CudaRange resolve(const MemoryWindow& window, Access access, const Caller& caller,
                                  BufferUses& uses) const {
    const CudaRange range = find(window, access, caller, uses);
    require_update(uses.back(), caller.site);
    return range;
  }
  /// As resolve(), for an operation that changes only what is known of the memory, not its contents.
  [[nodiscard]] CudaRange find(const MemoryWindow& window, Access access, const Caller& caller,
                               BufferUses& uses) const {
    const auto [buffer, size] = resolve_window(window, facts_->owner, caller);
#ifndef NDEBUG
    if (!memory_->is_live(buffer))
      throw IoError(IoError::Kind::StaleHandle,
                    describe_use(window, facts_->owner, caller) + ", but its memory has been freed", caller.site);
#endif
    if (!captured_writes_.empty()) [[unlikely]]
      require_not_captured(buffer, caller);
    uses.push_back({&buffer, access, window.memory, size == buffer.size()});
    return {buffer.address() == 0 ? 0 : buffer.address() + window.offset_start, size};
  }

  /// Calls `issue(IssueTarget)` after all work on any stream that has a hazard with `uses`; in a capture, adds it to
  /// the graph. Throws as CudaStreams::submit.
  template <class F>
  void submit(CudaStream& stream, const BufferUses& uses, const OperationName& name, F&& issue,
              std::shared_ptr<CudaEvent> ready = nullptr) {
    submit(stream, uses, name, std::forward<F>(issue), std::move(ready), uses);
  }
  /// As submit(), but only the uses `checked` are checked and poisoned (L14).
  template <class F>
  void submit_checking(CudaStream& stream, const BufferUses& uses, const BufferUses& checked, const OperationName& name,
                       F&& issue) {
    submit(stream, uses, name, std::forward<F>(issue), nullptr, checked);
  }
  /// As submit(), but `issue` itself must check and poison its memory (L14).
  template <class F>
  void submit_unchecked(CudaStream& stream, const BufferUses& uses, const OperationName& name, F&& issue) {
    submit(stream, uses, name, std::forward<F>(issue), nullptr, {});
  }
  /// As submit_unchecked(), but also after the stream's transfers: for operations that report the end of all work.
  template <class F>
  void submit_after_all(CudaStream& stream, const BufferUses& uses, const OperationName& name, F&& issue) {
    const StreamPositions waits = waits_for_all(stream, uses);
    const StreamPosition position = streams_.submit(stream, waits, name, std::forward<F>(issue));
    stream.clear_pending_waits();
    note(stream, uses, position);
    ranks_.note_waits(position, waits);
  }
  /// Calls `notify(IssueTarget, StreamPositions)` when all earlier work of the stream has been issued, including its
  /// transfers and pending waits. That work is complete when the queue's work and these positions are complete. The
  /// stream itself does not wait for the positions.
  template <class F>
  void notify_when_issued(CudaStream& stream, const std::source_location& site, F&& notify) {
    const StreamPositions waits = waits_for_all(stream, {});
    const StreamPosition position = streams_.submit(
        stream, waits, {nullptr, nullptr, site},
        [waits, notify = std::forward<F>(notify)](const IssueTarget& target) mutable {
          target.flush_launches();
          notify(target, waits);
        },
        nullptr, PieceKind::Notice);
    ranks_.note_waits(position, waits);
  }
  /// Calls `call(IssueTarget)` when all earlier work of the stream has been issued, and the driver has accepted or
  /// refused each launch. Throws as CudaStreams::submit.
  template <class F>
  void in_turn(CudaStream& stream, const std::source_location& site, F&& call) {
    static_cast<void>(streams_.submit(
        stream, {}, {nullptr, nullptr, site},
        [call = std::forward<F>(call)](const IssueTarget& target) mutable {
          target.flush_launches();
          call(target);
        },
        nullptr, PieceKind::Notice));
  }
  /// Before work on `uses` that runs beside the stream: if code outside the library may queue work on its driver stream
  /// (use_stream), makes these uses wait for what is there already. Throws as submit.
  void follow_foreign(CudaStream& stream, const BufferUses& uses, const std::source_location& site) {
    if (!stream.queue().native().is_foreign() || uses.empty()) return;
    BufferUses all = uses;
    for (BufferUse& use : all) use.access = Access::Write;
    submit_unchecked(stream, all, {nullptr, nullptr, site}, [](const IssueTarget&) {});
    streams_.mark(stream);
  }
  /// Queues a copy by the copy threads, as work of the stream. Throws as CudaTransfers::begin.
  void transfer(CudaStream& stream, const BufferUses& uses, CopyTask task);
  /// An operation of the caller's stream was refused before it was queued: poisons what it should have written, in
  /// stream order (L14). Does nothing in a capture, which fails as a whole.
  void poison(const BufferUses& uses, const std::exception_ptr& error, const Caller& caller) noexcept;
  void poison_one(const MemoryWindow& window, const std::exception_ptr& error, const Caller& caller) noexcept;

  /// Makes the driver stream wait for the stream's pending waits, for callers that issue work on it directly. Throws
  /// CudaError, std::bad_alloc.
  void clear_pending_waits(CudaStream& stream, const Caller& caller);

  /// Makes the calls that other threads have posted, and issues the work that can be issued now; after a fault, all
  /// work.
  void advance();

  /// A capture on the stream begins. Throws std::bad_alloc.
  void begin_capture(StreamId stream) { captured_writes_.begin(stream); }
  /// Records that the capture on the stream writes this memory outside the steps of its graph. Throws as resolve().
  void note_captured_write(const Binding& memory, const Caller& caller);
  [[nodiscard]] GraphId end_capture(CudaStream& stream, const Caller& caller);
  /// Null if no graph has that id.
  [[nodiscard]] std::shared_ptr<PartGraphs> part_graphs(GraphId id) const noexcept;
  /// Queues the graph's work on its stream. Throws ServerError Graph if no graph has that id.
  void replay(GraphId id, MembershipEpoch call_epoch, const Caller& caller);
  void remove_graph(GraphId id);

 private:
  template <class F>
  void submit(CudaStream& stream, const BufferUses& uses, const OperationName& name, F&& issue,
              std::shared_ptr<CudaEvent> ready, const BufferUses& checked) {
    if (stream.capture.capturing()) [[unlikely]]
      return capture(stream, uses, to_issue_later(std::forward<F>(issue)));
    const StreamPositions waits = waits_of(stream, uses);
    const StreamPosition before = stream.queue().last_position();
    try {
      const StreamPosition position =
          streams_.submit(stream, waits, name, std::forward<F>(issue), std::move(ready), PieceKind::Work, checked);
      stream.clear_pending_waits();
      note(stream, uses, position);
      ranks_.note_waits(position, waits);
    } catch (...) {
      note_failed(stream, uses, before);
      throw;
    }
  }
  // With an event after this use, other streams wait for the use and not for later work. An event for every use would
  // cost too much, so only buffers that several streams use get one.
  void note(CudaStream& stream, const BufferUses& uses, const StreamPosition& position) noexcept {
    bool shared = false;
    for (const BufferUse& use : uses) {
      use.buffer->uses.record(use.access, position);
      shared = shared || use.buffer->uses.is_shared();
    }
    if (shared) streams_.mark(stream);
  }
  void capture(CudaStream& stream, const BufferUses& uses, CudaIssue step);
  void require_not_captured(const DeviceBuffer& buffer, const Caller& caller) const;
  // A submission has failed. If its position was already taken, part of it may be in flight, so its uses are recorded.
  static void note_failed(CudaStream& stream, const BufferUses& uses, const StreamPosition& before) noexcept {
    const StreamPosition last = stream.queue().last_position();
    if (last.position == before.position) return;
    for (const BufferUse& use : uses) use.buffer->uses.record(use.access, last);
  }
  // Issues a part of a replay, unless an earlier part has failed.
  template <class Launch>
  void issue_part(CudaStream& stream, std::uint64_t sequence, const OperationName& name, const Launch& launch,
                  std::exception_ptr& failed, const OperationMemory& memory);
  [[nodiscard]] StreamPositions waits_of(CudaStream& stream, const BufferUses& uses);
  // As waits_of(), plus the stream's transfers.
  [[nodiscard]] StreamPositions waits_for_all(CudaStream& stream, const BufferUses& uses);
  [[nodiscard]] CudaMemory::Buffer try_allocate(const MemoryRequest& request);
  void end_borrowed() noexcept;
  void submit_batched() noexcept;
  // Requests a call of end_batch() at the end of the device thread's batch of tasks. Returns false if that is
  // impossible.
  [[nodiscard]] bool request_batch_end() noexcept { return thread_ != nullptr && thread_->at_batch_end(*this); }
  void end_batch() noexcept override;
  void drain() noexcept;

  ThreadContext* thread_ = nullptr;
  const Facts facts_;
  const std::shared_ptr<CudaContext> context_;
  const std::shared_ptr<CudaPoller> poller_;
  const std::shared_ptr<CudaEvents> events_;
  const std::shared_ptr<CudaEvents> timed_events_;
  const std::shared_ptr<PostQueue> posts_;
  CudaStreams streams_;
  CopyEngine engine_;
  CudaTransfers transfers_;
  CudaRanks ranks_;
  EventWatch watch_;
  std::shared_ptr<CudaRank> batching_;  // may have prepared collectives that were not submitted to the sequencer
  const std::unique_ptr<CudaMemory> memory_;
  std::vector<ManagedMemory> kept_;           // see keep()
  std::shared_ptr<CudaPinnedMemory> pinned_;  // shared with the bytes allocated from it
  std::shared_ptr<CudaPinnedMemory> results_;
  SmallReadSlots small_reads_;
  DriverStream capture_stream_;  // for capturing graphs, each in one go
  struct Captured {
    StreamId stream;
    std::shared_ptr<CudaGraph> graph;
  };
  std::unordered_map<std::uint64_t, Captured> graphs_;  // by id
  CapturedWrites captured_writes_;
  std::chrono::steady_clock::time_point polled_;
  metrics::Registration metrics_;
  FaultListener fault_listener_;
};

}  // namespace cox::detail
