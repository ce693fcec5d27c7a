#pragma once

#include <coxswain/device_handle/base/unique_function.hpp>
#include <coxswain/runtime/buffer/operation_memory.hpp>
#include <coxswain/runtime/bytes/bytes.hpp>
#include <coxswain/runtime/memory/access_tracker.hpp>
#include <coxswain/runtime/memory/stream_position.hpp>
#include <coxswain/servers/cuda/event/cuda_event.hpp>
#include <coxswain/servers/cuda/event/cuda_timeline.hpp>
#include <coxswain/servers/cuda/stream/held_bytes.hpp>
#include <coxswain/servers/cuda/stream/native_stream.hpp>
#include <coxswain/servers/cuda/stream/piece_uses.hpp>

#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

namespace cox::detail {

class CudaStream;
class StreamQueue;

/// Where a piece of work is issued: a stream, or a stream that is being captured.
struct IssueTarget {
  CUstream captured = nullptr;         ///< the stream being captured; null: no capture
  StreamQueue* queue = nullptr;        ///< null in a capture
  std::vector<Bytes>* kept = nullptr;  ///< memory that the captured graph keeps; null outside a capture
  PieceUses uses = {};  ///< memory that the piece uses, if the submitter passed it to CudaStreams; empty in a capture

  /// The driver stream to issue work on. Passes all batched launches of the stream to the driver first.
  [[nodiscard]] CUstream stream() const noexcept;
  /// Passes all batched launches of the stream to the driver. Launches that the driver refuses are then among the
  /// errors of their streams. Not in a capture.
  void flush_launches() const noexcept;
  /// Keeps host memory until the work issued so far has completed; in a capture, the graph keeps it. Throws
  /// std::bad_alloc; then the memory stays with the caller.
  void hold(Bytes&& bytes) const;
};

/// Passes one piece of work to the driver. Called once, on the device thread, with the device's context current. Throws
/// CudaError.
using CudaIssue = UniqueFunction<void(const IssueTarget&)>;

/// Converts a piece of work to a closure that can be issued later. A piece that refers to objects of the submitting
/// call provides later(), which returns a closure that owns them. Most work is issued at once and needs no such
/// closure.
template <class F>
[[nodiscard]] CudaIssue to_issue_later(F&& issue) {
  if constexpr (requires { std::forward<F>(issue).later(); }) {
    return CudaIssue(std::forward<F>(issue).later());
  } else {
    return CudaIssue(std::forward<F>(issue));
  }
}

/// Whether the piece is a launch, and whether the driver may be given it together with other launches.
struct LaunchKind {
  bool is_launch = false;
  bool is_batched = false;
};
template <class F>
[[nodiscard]] LaunchKind launch_kind(const F& issue) noexcept {
  if constexpr (requires { issue.is_batched(); }) return {true, issue.is_batched()};
  return {};
}

enum class PieceKind : std::uint8_t {
  Work,    ///< issued to the driver stream, after the waits of the piece
  Notice,  ///< not for the driver: runs when everything it waits for has been issued
};

/// The work of one StreamId, in order: what was issued on its driver stream, and what cannot be issued yet. A wait of
/// one StreamId never blocks another one that shares the driver stream. Device thread only.
class StreamQueue {
 public:
  /// A piece that waits for something that the driver cannot wait for.
  struct Pending {
    StreamPositions waits;             ///< must have been issued
    std::shared_ptr<CudaEvent> ready;  ///< must have been reached; may be null
    CudaIssue issue;
    OperationName name;
    std::shared_ptr<CudaStream> owner;  ///< its errors receive what issue() throws
    std::uint64_t sequence;             ///< the piece's position among those errors
    PieceKind kind;
    OperationMemory memory;  ///< memory for the checks of L14, if any
    LaunchKind launch;
    bool has_failed = false;  ///< failed before it was issued: nothing is issued in its turn
  };

  StreamQueue(StreamSlot slot, CudaTimeline& timeline, NativeStream& native)
      : slot_(slot), timeline_(timeline), native_(native) {}
  StreamQueue(const StreamQueue&) = delete;
  StreamQueue& operator=(const StreamQueue&) = delete;

  [[nodiscard]] StreamSlot slot() const noexcept { return slot_; }
  [[nodiscard]] NativeStream& native() const noexcept { return native_; }
  [[nodiscard]] CudaTimeline& timeline() noexcept { return timeline_; }
  [[nodiscard]] const CudaTimeline& timeline() const noexcept { return timeline_; }
  [[nodiscard]] IssueTarget target() noexcept { return {nullptr, this, nullptr, {}}; }
  /// The position after all work submitted so far.
  [[nodiscard]] StreamPosition last_position() const noexcept { return {slot_, timeline_.submitted()}; }
  /// No work is pending or in flight.
  [[nodiscard]] bool idle() const noexcept {
    return timeline_.completed() == timeline_.submitted() && !is_listed && held_.empty() && held_together_.empty();
  }

  /// An event after all issued work. Throws CudaError, std::bad_alloc.
  const std::shared_ptr<CudaEvent>& mark(CudaEvents& events) {
    // Poll every 32 marks: events that have been reached would accumulate while no thread allocates or waits.
    if (timeline_.marks() % 32 == 31) poll();
    const std::shared_ptr<CudaEvent>& event = native_.event_after_all(events);
    timeline_.mark(timeline_.issued(), event);
    return event;
  }
  /// Adds the mark that mark() would have added when `issued` pieces of this stream and `issued_on_native` pieces of
  /// its driver stream had been issued. `event` was recorded at that time. Precondition: there is no later mark. Throws
  /// std::bad_alloc.
  void mark(std::uint64_t issued, std::uint64_t issued_on_native, const std::shared_ptr<CudaEvent>& event) {
    native_.mark(issued_on_native, event);
    timeline_.mark(issued, event);
  }
  /// Keeps host memory until all work issued so far is complete. Throws std::bad_alloc; then the memory stays with the
  /// caller.
  void hold(Bytes&& bytes) { held_.emplace_back(timeline_.issued(), std::move(bytes)); }
  /// The memory that is kept for the work issued so far; null if there is none. Throws std::bad_alloc.
  [[nodiscard]] std::shared_ptr<HeldBytes> held();
  /// Polls for completed work, and releases the memory kept for it.
  void poll() noexcept;

  std::deque<Pending> pending;
  bool is_listed = false;              ///< in the list of queues with pending work
  std::shared_ptr<CudaEvent> awaited;  ///< the device thread will be notified when it is reached; may be null

 private:
  struct Held {
    Held(std::uint64_t after, Bytes&& held) noexcept : position(after), bytes(std::move(held)) {}
    std::uint64_t position;
    Bytes bytes;
  };
  struct HeldTogether {
    std::uint64_t position;
    std::shared_ptr<HeldBytes> bytes;
  };

  const StreamSlot slot_;
  CudaTimeline& timeline_;
  NativeStream& native_;
  std::deque<HeldTogether> held_together_;  // a waiting client may release these, too
  std::deque<Held> held_;                   // memory of later work
};

inline CUstream IssueTarget::stream() const noexcept { return queue != nullptr ? queue->native().native() : captured; }

inline void IssueTarget::flush_launches() const noexcept {
  if (queue->native().has_launches()) queue->native().flush();
}

inline void IssueTarget::hold(Bytes&& bytes) const {
  if (queue != nullptr) return queue->hold(std::move(bytes));
  kept->push_back(std::move(bytes));
}

}  // namespace cox::detail
