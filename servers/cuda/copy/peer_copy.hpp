#pragma once

#include <coxswain/runtime/tensor/copy_plan.hpp>
#include <coxswain/servers/cuda/device/cuda_context.hpp>
#include <coxswain/servers/cuda/driver/driver.hpp>
#include <coxswain/servers/cuda/event/cuda_event.hpp>
#include <coxswain/servers/cuda/stream/cuda_streams.hpp>

#include <array>
#include <cstddef>
#include <exception>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace cox::detail {

/// Memory of one side of a transfer.
struct PeerRange {
  CUdeviceptr address = 0;
  CopyPlan rows;
};

class PeerCopyStream;

/// A transfer from one GPU to another, where its two sides meet. Each brings its memory and the events behind which
/// that may be touched; the copy is issued on a stream of the sender: that is a tenth faster than on one of the
/// receiver. Neither waits. Any thread.
class PeerCopy {
 public:
  struct End {
    std::exception_ptr error;
    bool is_refused = false;           ///< the error is the sender's refusal: nothing was copied
    std::shared_ptr<CudaEvent> event;  ///< null: nothing was copied
    bool may_fail = false;             ///< the sender's
  };
  /// Told how it ended. Called once, on the thread of whoever issues it; must not throw.
  using CompletionCallback = UniqueFunction<void(const End&)>;

  struct Side {
    std::vector<PeerRange> ranges;  ///< of each request of the group
    std::vector<std::shared_ptr<CudaEvent>> ready;
    std::shared_ptr<PeerCopyStream> stream;  ///< of the sender, which it is in; null: of the receiver
    CudaEvents* events = nullptr;            ///< of the side's device
    std::exception_ptr failure;              ///< why this side cannot take part
    std::exception_ptr refusal;              ///< that the source is poisoned
    bool may_fail = false;                   ///< the source may still turn out to be poisoned
    CompletionCallback on_completed;
  };

  /// `place`: 0 sends, 1 receives. The second to arrive has the sender's stream issue what it can.
  void arrive(std::size_t place, Side side);

 private:
  friend class PeerCopyStream;

  void issue() noexcept;

  std::mutex mutex_;
  std::array<Side, 2> sides_;       // guarded by mutex_ until both have come
  bool first_arrived_ = false;      // guarded by mutex_
  bool both_arrived_ = false;       // guarded by the stream's mutex
  std::shared_ptr<PeerCopy> next_;  // the next on the stream; guarded by the stream's mutex
};

/// The copies that a device sends, in the order of their turns, on a stream that has nothing else. That order agrees
/// with whatever waits for whatever (decision 4); a copy that got ahead of another could wait for what waits for that
/// one. Any thread.
class PeerCopyStream {
 public:
  explicit PeerCopyStream(std::shared_ptr<CudaStream> stream) noexcept : stream_(std::move(stream)) {}

  /// It is the copy's turn. In the order of the turns; before its sender comes. Does not block.
  void add(std::shared_ptr<PeerCopy> copy) noexcept;

 private:
  friend class PeerCopy;

  /// Both sides are there: issues the first of the stream up to one that is not complete.
  void complete(PeerCopy& copy) noexcept;

  const std::shared_ptr<CudaStream> stream_;
  std::mutex mutex_;
  std::shared_ptr<PeerCopy> first_;  // guarded by mutex_
  PeerCopy* last_ = nullptr;         // guarded by mutex_; good if there is a first
  bool issuing_ = false;             // guarded by mutex_: a thread is at it, and looks again
};

}  // namespace cox::detail
