#pragma once

#include <coxswain/runtime/bytes.hpp>
#include <coxswain/runtime/memory/last_uses.hpp>
#include <coxswain/runtime/memory/stream_position.hpp>
#include <coxswain/runtime/unique_function.hpp>
#include <coxswain/servers/cuda/detail/cuda_event.hpp>
#include <coxswain/servers/cuda/detail/cuda_timeline.hpp>
#include <coxswain/servers/cuda/detail/held_bytes.hpp>
#include <coxswain/servers/cuda/detail/operation_history.hpp>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

namespace cox::detail {

class CudaStream;
class NativeStream;

/// Where a piece of work is issued: a stream, or a stream that is being captured.
struct IssueTarget {
  CUstream stream = nullptr;
  NativeStream* native = nullptr;      ///< null in a capture
  std::vector<Bytes>* kept = nullptr;  ///< by the graph, in a capture

  /// Keeps host memory until the work issued so far has passed it. Throws std::bad_alloc.
  void hold(Bytes bytes) const;
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

/// A stream of the driver, and the work for it that cannot be issued yet, in order. Device thread only.
class NativeStream {
 public:
  /// A piece that has to wait for something that the driver cannot wait for.
  struct Pending {
    StreamPositions waits;             ///< which must have been issued
    std::shared_ptr<CudaEvent> ready;  ///< which must have been reached, if it is not null
    CudaIssue issue;
    std::shared_ptr<CudaStream> owner;  ///< whose errors get what issue() throws
    std::uint64_t sequence;             ///< the piece's place among those errors
  };

  /// Throws CudaError.
  NativeStream(StreamSlot slot, CudaTimeline& timeline);
  NativeStream(const NativeStream&) = delete;
  NativeStream& operator=(const NativeStream&) = delete;
  /// All work is complete.
  ~NativeStream();

  [[nodiscard]] StreamSlot slot() const noexcept { return slot_; }
  [[nodiscard]] CUstream native() const noexcept { return stream_; }
  [[nodiscard]] CudaTimeline& timeline() noexcept { return timeline_; }
  [[nodiscard]] const CudaTimeline& timeline() const noexcept { return timeline_; }
  [[nodiscard]] IssueTarget target() noexcept { return {stream_, this, nullptr}; }

  /// Records an event behind all that was issued. Throws CudaError, std::bad_alloc.
  const std::shared_ptr<CudaEvent>& mark(CudaEvents& events);
  /// Keeps host memory until all that was issued so far is complete. Throws std::bad_alloc.
  void hold(Bytes bytes) { held_.push_back({timeline_.issued(), std::move(bytes)}); }
  /// What is kept for the work issued so far; null if nothing is. Throws std::bad_alloc.
  [[nodiscard]] std::shared_ptr<HeldBytes> held();
  /// Looks how far the device has come, and lets go of what it has passed.
  void poll() noexcept;

  /// The position of another slot that this stream waits for already.
  [[nodiscard]] std::uint64_t& waited_for(StreamSlot other) {
    const auto index = static_cast<std::size_t>(other);
    if (index >= waited_.size()) waited_.resize(index + 1);
    return waited_[index];
  }

  std::deque<Pending> pending;
  bool wake_up_is_due = false;  ///< somebody will ring when the first of them can go on
  std::size_t users = 0;        ///< StreamIds that share the stream
  bool apart = false;           ///< no StreamId is ever put on it
  OperationHistory history;

 private:
  struct Held {
    std::uint64_t position;
    Bytes bytes;
  };
  struct HeldTogether {
    std::uint64_t position;
    std::shared_ptr<HeldBytes> bytes;
  };

  const StreamSlot slot_;
  CudaTimeline& timeline_;
  CUstream stream_ = nullptr;
  std::deque<HeldTogether> held_together_;  // that somebody who waits may give back, too
  std::deque<Held> held_;                   // the later ones
  std::vector<std::uint64_t> waited_;       // by slot
};

inline void IssueTarget::hold(Bytes bytes) const {
  if (native != nullptr) return native->hold(std::move(bytes));
  kept->push_back(std::move(bytes));
}

}  // namespace cox::detail
