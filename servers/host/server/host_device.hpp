#pragma once

#include <coxswain/device_handle/base/device_id.hpp>
#include <coxswain/device_handle/base/unique_function.hpp>
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
#include <coxswain/runtime/error/server_operation.hpp>
#include <coxswain/runtime/memory/borrowed_memory.hpp>
#include <coxswain/runtime/telemetry/metrics.hpp>
#include <coxswain/servers/host/collective/host_ranks.hpp>
#include <coxswain/servers/host/kernel/host_range.hpp>
#include <coxswain/servers/host/memory/host_memory.hpp>
#include <coxswain/servers/host/server/host_options.hpp>
#include <coxswain/servers/host/stream/host_graph.hpp>
#include <coxswain/servers/host/stream/host_stream.hpp>
#include <coxswain/servers/host/stream/host_streams.hpp>
#include <coxswain/servers/host/stream/host_threads.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>

namespace cox::detail {

/// The threads, streams and memory of a HostServer. Orders the work on them. Device thread only.
class HostDevice {
 public:
  using Facts = std::shared_ptr<const ServerFacts>;

  /// `thread`: the device's thread; null if attach() sets it later.
  HostDevice(Facts facts, const HostOptions& options, ThreadContext* thread);
  HostDevice(const HostDevice&) = delete;
  HostDevice& operator=(const HostDevice&) = delete;
  /// Blocks until all work has run. Reports the errors that no call has taken.
  ~HostDevice();

  /// Sets the thread on which all functions are called from now on. Call once.
  void attach(ThreadContext& thread) { posts_->attach(thread); }
  [[nodiscard]] const Facts& facts() const noexcept { return facts_; }
  [[nodiscard]] HostStream& stream(StreamId id) { return streams_.find_or_create(id); }
  [[nodiscard]] HostStreams& streams() noexcept { return streams_; }
  [[nodiscard]] HostRanks& ranks() noexcept { return ranks_; }
  [[nodiscard]] HostMemory& memory() noexcept { return memory_; }
  [[nodiscard]] HostPinnedMemory& pinned() noexcept { return *pinned_; }
  [[nodiscard]] Location location(const Caller& caller) const { return {facts_->owner.device, caller.stream}; }

  /// Allocates memory for the caller's stream. Throws IoError BufferTooBig, OutOfMemory with a report of all memory, or
  /// OutOfHostMemory; ServerError Graph if a capture would have to grow the pool.
  [[nodiscard]] CaptureMemory::Buffer allocate(std::size_t size, const Caller& caller);
  /// The storage of memory that `owner` has lent. Throws std::bad_alloc.
  [[nodiscard]] HostMemory::Buffer borrow(std::byte* memory, std::size_t bytes, std::shared_ptr<BorrowedMemory> owner);
  /// Allocates staging memory, the equivalent of page-locked memory on a GPU. Throws IoError as allocate.
  [[nodiscard]] Bytes allocate_pinned(std::size_t size, const Caller& caller);
  /// The memory of the window. Adds its buffer to `uses`, which must not outlive what the window refers to. Throws
  /// IoError as resolve_window; ServerError: Graph if a capture writes the buffer and the caller's stream is not
  /// capturing, Validation for a write of kept memory outside of an update.
  [[nodiscard]] HostRange resolve(const MemoryWindow& window, Access access, const Caller& caller,
                                  BufferUses& uses) const {
    const HostRange range = find(window, access, caller, uses);
    require_update(uses.back(), caller.site);
    return range;
  }
  /// As resolve(), for an operation that changes only what is known of the memory, not its contents.
  [[nodiscard]] HostRange find(const MemoryWindow& window, Access access, const Caller& caller, BufferUses& uses) const;
  /// Queues `work` after all accesses on other streams that its uses must wait for. During a capture adds it to the
  /// graph instead; `work` may then run many times. Throws std::bad_alloc; then nothing has changed.
  /// `name`: for traces, of static storage.
  void submit(HostStream& stream, const BufferUses& uses, UniqueFunction<void()> work, const char* name);
  /// The OperationMemory of the work that is queued next on the stream. Empty during a capture: each replay has its
  /// own. Throws std::bad_alloc.
  [[nodiscard]] OperationMemory operation_memory(const HostStream& stream, const BufferUses& uses,
                                                 std::source_location site) const {
    return stream.capture.capturing() ? OperationMemory() : OperationMemory(uses, site);
  }
  /// An operation of the caller's stream was refused before it was queued: poisons the memory that it should have
  /// written, in stream order (L14). Does nothing in a capture, which fails as a whole.
  template <class Windows>
  void poison(const Windows& windows, const std::exception_ptr& error, const Caller& caller) noexcept {
    for (const auto& window : windows) poison_one(window, error, caller);
  }
  void poison_one(const KernelBuffer& buffer, const std::exception_ptr& error, const Caller& caller) noexcept {
    if (writes(buffer.access)) poison_one(MemoryWindow(buffer), error, caller);
  }
  void poison_one(const MemoryWindow& window, const std::exception_ptr& error, const Caller& caller) noexcept;
  void poison(const BufferUses& uses, const std::exception_ptr& error, const Caller& caller) noexcept;
  /// Work that is queued on the stream from now on runs after these positions. Throws std::bad_alloc.
  void wait_for(HostStream& stream, const StreamPositions& positions);

  /// A capture has begun on the stream. Throws std::bad_alloc.
  void begin_capture(StreamId stream) { captured_writes_.begin(stream); }
  /// The capture on the stream writes this memory, but not in a step of its graph: in a collective. Throws as
  /// resolve().
  void note_captured_write(const Binding& memory, const Caller& caller);
  /// Ends the capture on the stream. Throws as GraphCapture::stop.
  [[nodiscard]] GraphId end_capture(HostStream& stream, const Caller& caller);
  /// Queues the graph's work on its stream. Throws ServerError Graph if there is no graph with that id.
  void replay(GraphId id, MembershipEpoch call_epoch, const Caller& caller);
  void remove_graph(GraphId id) noexcept { graphs_.erase(id.value); }

 private:
  void end_borrowed() noexcept;
  void poison_if_failed(HostStream& stream, const std::shared_ptr<HostGraph>& graph,
                        const std::shared_ptr<std::exception_ptr>& failed, const Caller& caller);

  Facts facts_;
  const std::shared_ptr<PostQueue> posts_;
  HostThreads threads_;
  HostStreams streams_;
  HostRanks ranks_;
  HostMemory memory_;
  std::shared_ptr<HostPinnedMemory> pinned_;  // shared with the bytes that it has allocated
  struct Captured {
    StreamId stream;
    std::shared_ptr<HostGraph> graph;
  };
  std::unordered_map<std::uint64_t, Captured> graphs_;  // by id
  CapturedWrites captured_writes_;
  metrics::Registration metrics_;
};

}  // namespace cox::detail
