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
#include <coxswain/runtime/launch/submit_mode.hpp>
#include <coxswain/runtime/telemetry/metrics.hpp>
#include <coxswain/servers/cuda/collective/cuda_communicators.hpp>
#include <coxswain/servers/cuda/copy/copy_engine.hpp>
#include <coxswain/servers/cuda/copy/cuda_transfers.hpp>
#include <coxswain/servers/cuda/device/cuda_context.hpp>
#include <coxswain/servers/cuda/driver/cuda_try.hpp>
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

namespace cox::detail {

/// Memory of the device.
struct CudaRange {
  CUdeviceptr address = 0;
  std::size_t size = 0;  ///< bytes
};

/// What a CudaServer owns: streams, memory, the threads that copy, and how work is put in order. Device thread only.
class CudaDevice final : private BatchHook {
 public:
  using Facts = std::shared_ptr<const ServerFacts>;

  /// `thread`: that of the device, or null: attach() tells it.
  CudaDevice(Facts facts, std::shared_ptr<CudaContext> context, ThreadContext* thread);
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;
  /// Blocks until all work has run; reports the errors that nobody came to ask for.
  ~CudaDevice();

  [[nodiscard]] const Facts& facts() const noexcept { return facts_; }
  /// The caller's stream, with the device's context current on this thread. First in every operation. Throws CudaError,
  /// std::bad_alloc.
  [[nodiscard]] CudaStream& enter(const Caller& caller) {
    if (!gpu_faulted()) [[likely]]                              // else no call of the driver would come of it
      COX_CUDA_CHECK(context_set_current(context_->native()));  // a fault it finds is told by the operation
    return streams_.find_or_create(caller.stream);
  }
  /// The thread on which all of this is called from now on. Once.
  void attach(ThreadContext& thread);
  /// What the device thread posts for itself while this lives waits for run_calls().
  [[nodiscard]] PostQueue::HoldNotify hold_notify() noexcept { return PostQueue::HoldNotify(*posts_); }
  /// Makes the calls that have been left for the device thread, and issues what they make possible. It need not wait
  /// for the posts, behind all that clients have submitted meanwhile. What fails is reported, as there.
  void run_calls() noexcept;
  /// The rank asks for what it has submitted: now; or at the end of this thread's batch of tasks, with what it will
  /// have submitted by then, and sooner if that is much. What has its turn by that is launched by run_calls().
  void submit_to_sequencer(CudaCommunicator& communicator, SubmitMode when) noexcept;
  /// The driver is given the launches so far: now; or at the end of this thread's batch of tasks, with those that come
  /// by then.
  void flush_launches(SubmitMode when) noexcept;
  [[nodiscard]] EventWatch& watch() noexcept { return watch_; }
  [[nodiscard]] CudaStreams& streams() noexcept { return streams_; }
  [[nodiscard]] CudaTransfers& transfers() noexcept { return transfers_; }
  [[nodiscard]] CudaCommunicators& communicators() noexcept { return communicators_; }
  [[nodiscard]] CudaEvents& events() noexcept { return *events_; }
  [[nodiscard]] CudaEvents& timed_events() noexcept { return *timed_events_; }
  [[nodiscard]] CudaMemory& memory() noexcept { return *memory_; }
  [[nodiscard]] CudaPinnedMemory& pinned() noexcept { return *pinned_; }
  [[nodiscard]] SmallReadSlots& small_reads() noexcept { return small_reads_; }
  /// For large reads, on the threads that copy: page-locked memory of its own, so that the device thread does not wait
  /// while it grows.
  [[nodiscard]] const std::shared_ptr<CudaPinnedMemory>& results() const noexcept { return results_; }
  [[nodiscard]] Location location(const Caller& caller) const { return {facts_->owner.device, caller.stream}; }

  /// Storage for new memory of the caller's stream. Throws IoError BufferTooBig, OutOfMemory with the whole picture, or
  /// OutOfHostMemory; ServerError Graph if a capture would have to grow the pool.
  [[nodiscard]] CaptureMemory::Buffer allocate(std::size_t size, const Caller& caller);
  /// Page-locked host memory. Throws IoError as allocate.
  [[nodiscard]] Bytes allocate_pinned(std::size_t size, const Caller& caller);
  /// Where the window is; adds its buffer to `uses`, which must not outlive what the window refers to. Throws IoError
  /// as resolve_window, ServerError Graph if a capture of another stream writes the buffer.
  [[nodiscard]] CudaRange resolve(const MemoryWindow& window, Access access, const Caller& caller,
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

  /// `issue(IssueTarget)` comes behind everything on any stream that its uses must wait for; in a capture it joins the
  /// graph. Throws as CudaStreams::submit.
  template <class F>
  void submit(CudaStream& stream, const BufferUses& uses, const OperationName& name, F&& issue,
              std::shared_ptr<CudaEvent> ready = nullptr) {
    submit(stream, uses, name, std::forward<F>(issue), std::move(ready), uses);
  }
  /// The same; whether its memory is poisoned, and is by it, is its own concern.
  template <class F>
  void submit_unchecked(CudaStream& stream, const BufferUses& uses, const OperationName& name, F&& issue) {
    submit(stream, uses, name, std::forward<F>(issue), nullptr, {});
  }
  /// As submit_unchecked(), behind the stream's transfers, too: for what tells that all work is done.
  template <class F>
  void submit_after_all(CudaStream& stream, const BufferUses& uses, const OperationName& name, F&& issue) {
    const StreamPositions waits = waits_for_all(stream, uses);
    const StreamPosition position = streams_.submit(stream, waits, name, std::forward<F>(issue));
    stream.clear_pending_waits();
    note(stream, uses, position);
    communicators_.note_waits(position, waits);
  }
  /// `notify(IssueTarget, StreamPositions)` when all work of the stream so far has been issued, its transfers and what
  /// it owes too. It is complete when that of the queue is, and these positions are: the stream does not wait for them.
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
    communicators_.note_waits(position, waits);
  }
  /// `call(IssueTarget)` when all that comes before it in the stream has been issued, and what the driver refuses of it
  /// is known.
  /// Throws as CudaStreams::submit.
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
  /// A copy that the threads of the device make, as work of the stream. Throws as CudaTransfers::begin.
  void transfer(CudaStream& stream, const BufferUses& uses, CopyTask task);
  /// An operation of the caller's stream was refused before it was queued: what it should have written is poisoned from
  /// here on (L14). Not in a capture, which fails as a whole.
  void poison(const BufferUses& uses, const std::exception_ptr& error, const Caller& caller) noexcept;
  void poison_one(const MemoryWindow& window, const std::exception_ptr& error, const Caller& caller) noexcept;

  /// Tells the driver what the stream owes, for who issues work on it himself. Throws CudaError, std::bad_alloc.
  void clear_pending_waits(CudaStream& stream, const Caller& caller);

  /// Makes the calls that other threads have left, and issues what can be issued by now; after a fault, everything.
  void advance();

  /// The capture on the stream has begun. Throws std::bad_alloc.
  void begin_capture(StreamId stream) { captured_writes_.begin(stream); }
  /// The capture on the stream writes this memory in what is no step of its graph. Throws as resolve().
  void note_captured_write(const Binding& memory, const Caller& caller);
  [[nodiscard]] GraphId end_capture(CudaStream& stream, const Caller& caller);
  /// Queues the graph's work on its stream. Throws ServerError Graph if there is none of that id.
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
      communicators_.note_waits(position, waits);
    } catch (...) {
      note_failed(stream, uses, before);
      throw;
    }
  }
  // An event behind a use lets other streams wait for it, and not for what comes later; one for each would cost too
  // much.
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
  // A submission has failed. If it has come behind what it waits for, a part of it may be in flight.
  static void note_failed(CudaStream& stream, const BufferUses& uses, const StreamPosition& before) noexcept {
    const StreamPosition last = stream.queue().last_position();
    if (last.position == before.position) return;
    for (const BufferUse& use : uses) use.buffer->uses.record(use.access, last);
  }
  // A part of a replay, if those before it have not failed.
  template <class Launch>
  void issue_part(CudaStream& stream, std::uint64_t sequence, const OperationName& name, const Launch& launch,
                  std::exception_ptr& failed, const OperationMemory& memory);
  [[nodiscard]] StreamPositions waits_of(CudaStream& stream, const BufferUses& uses);
  // And behind the stream's transfers.
  [[nodiscard]] StreamPositions waits_for_all(CudaStream& stream, const BufferUses& uses);
  [[nodiscard]] CudaMemory::Buffer try_allocate(const MemoryRequest& request);
  void submit_batched() noexcept;
  // Has end_batch() called when the device thread's batch of tasks ends. Returns false where that is not possible.
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
  CudaCommunicators communicators_;
  EventWatch watch_;
  CudaCommunicator* batching_ = nullptr;  // which may have submitted what it has not asked for
  const std::unique_ptr<CudaMemory> memory_;
  std::shared_ptr<CudaPinnedMemory> pinned_;  // with the bytes that it gave out
  std::shared_ptr<CudaPinnedMemory> results_;
  SmallReadSlots small_reads_;
  CUstream capture_stream_ = nullptr;  // for graphs, which are captured whole
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
