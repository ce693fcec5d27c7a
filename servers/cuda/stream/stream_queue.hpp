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
  CUstream captured = nullptr;         ///< null: it is none that is being captured
  StreamQueue* queue = nullptr;        ///< null in a capture
  std::vector<Bytes>* kept = nullptr;  ///< by the graph, in a capture
  PieceUses uses = {};                 ///< the memory of the piece, if CudaStreams was told; none in a capture

  /// What the driver is to be given work on.
  [[nodiscard]] CUstream stream() const noexcept;
  /// Gives the driver all launches that were issued on the stream; those that it refuses are among the errors then. Not
  /// in a capture.
  void flush_launches() const noexcept;
  /// Keeps host memory until the work issued so far has passed it. Throws std::bad_alloc; then it stays with the
  /// caller.
  void hold(Bytes&& bytes) const;
};

/// A piece of work as the driver is given it, once, on the device thread with its context current. Throws CudaError.
using CudaIssue = UniqueFunction<void(const IssueTarget&)>;

/// What is issued later. A piece of work may refer to what is there only now, and then has later(), which gives one
/// that can be kept: most work is issued at once and need not be made to last.
template <class F>
[[nodiscard]] CudaIssue to_issue_later(F&& issue) {
  if constexpr (requires { std::forward<F>(issue).later(); }) {
    return CudaIssue(std::forward<F>(issue).later());
  } else {
    return CudaIssue(std::forward<F>(issue));
  }
}

/// Whether the piece is a launch, and one that the driver may be given together with others.
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
  Work,    ///< for the driver, which is told what it comes behind
  Notice,  ///< nothing for the driver: what it comes behind has been issued
};

/// The work of one StreamId, in order: what its stream of the driver was given, and what cannot be issued yet. What one
/// waits for never holds up another, though they share a stream of the driver. Device thread only.
class StreamQueue {
 public:
  /// A piece that has to wait for something that the driver cannot wait for.
  struct Pending {
    StreamPositions waits;             ///< which must have been issued
    std::shared_ptr<CudaEvent> ready;  ///< which must have been reached, if it is not null
    CudaIssue issue;
    OperationName name;
    std::shared_ptr<CudaStream> owner;  ///< whose errors get what issue() throws
    std::uint64_t sequence;             ///< the piece's place among those errors
    PieceKind kind;
    OperationMemory memory;  ///< what L14 asks of it, if anything
    LaunchKind launch;
    bool has_failed = false;  ///< before it was issued: it does nothing when its turn comes
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
  /// Behind all that was submitted so far.
  [[nodiscard]] StreamPosition last_position() const noexcept { return {slot_, timeline_.submitted()}; }
  /// Nothing is pending or under way.
  [[nodiscard]] bool idle() const noexcept {
    return timeline_.completed() == timeline_.submitted() && !is_listed && held_.empty() && held_together_.empty();
  }

  /// An event behind all that was issued. Throws CudaError, std::bad_alloc.
  const std::shared_ptr<CudaEvent>& mark(CudaEvents& events) {
    // Else nothing looks as long as nobody allocates or waits, and events that have been reached pile up.
    if (timeline_.marks() % 32 == 31) poll();
    const std::shared_ptr<CudaEvent>& event = native_.event_after_all(events);
    timeline_.mark(timeline_.issued(), event);
    return event;
  }
  /// As if mark() had been called when so much had been issued, of this and of the stream of the driver: with `event`,
  /// which was recorded then. There is no later mark. Throws std::bad_alloc.
  void mark(std::uint64_t issued, std::uint64_t issued_on_native, const std::shared_ptr<CudaEvent>& event) {
    native_.mark(issued_on_native, event);
    timeline_.mark(issued, event);
  }
  /// Keeps host memory until all that was issued so far is complete. Throws std::bad_alloc; then it stays with the
  /// caller.
  void hold(Bytes&& bytes) { held_.emplace_back(timeline_.issued(), std::move(bytes)); }
  /// What is kept for the work issued so far; null if nothing is. Throws std::bad_alloc.
  [[nodiscard]] std::shared_ptr<HeldBytes> held();
  /// Looks how far the device has come, and lets go of what it has passed.
  void poll() noexcept;

  std::deque<Pending> pending;
  bool is_listed = false;             ///< among those that have pending work
  bool notification_pending = false;  ///< somebody will ring when the first of them can go on

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
  std::deque<HeldTogether> held_together_;  // that somebody who waits may give back, too
  std::deque<Held> held_;                   // the later ones
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
