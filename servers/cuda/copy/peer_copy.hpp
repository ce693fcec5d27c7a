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

/// Device memory of one side of a transfer.
struct PeerRange {
  CUdeviceptr address = 0;
  CopyPlan rows;
};

class PeerCopyStream;

/// A transfer from one GPU to another: the point where its two sides meet. Each side brings its memory, and the events
/// that must be reached before the memory may be accessed. The copy is issued on a stream of the sender, which is a
/// tenth faster than on a stream of the receiver. Neither side waits. Any thread.
class PeerCopy {
 public:
  struct End {
    std::exception_ptr error;
    bool is_refused = false;           ///< `error` is the sender's refusal: nothing was copied
    std::shared_ptr<CudaEvent> event;  ///< null: nothing was copied
    bool may_fail = false;             ///< `may_fail` of the sender
  };
  /// Receives the result of the transfer. Called once, on the thread that issues the copy; must not throw.
  using CompletionCallback = UniqueFunction<void(const End&)>;

  struct Side {
    std::vector<PeerRange> ranges;  ///< of each request of the group
    std::vector<std::shared_ptr<CudaEvent>> ready;
    std::shared_ptr<PeerCopyStream> stream;  ///< set by the sender: the stream with this copy; null for the receiver
    CudaEvents* events = nullptr;            ///< of this side's device
    std::exception_ptr failure;              ///< why this side cannot take part
    std::exception_ptr refusal;              ///< error of a poisoned source
    bool may_fail = false;                   ///< the source may still turn out to be poisoned
    CompletionCallback on_completed;
  };

  /// `place`: 0 sends, 1 receives. The second side to arrive issues all copies of the sender's stream that are ready.
  void arrive(std::size_t place, Side side);

 private:
  friend class PeerCopyStream;

  void issue() noexcept;

  std::mutex mutex_;
  std::array<Side, 2> sides_;       // guarded by mutex_ until both have arrived
  bool first_arrived_ = false;      // guarded by mutex_
  bool both_arrived_ = false;       // guarded by the stream's mutex
  std::shared_ptr<PeerCopy> next_;  // the next on the stream; guarded by the stream's mutex
};

/// The copies that a device sends, in the order in which the sequencer has granted them, on a stream with no other
/// work. This order is consistent with all waits between operations (decision 4). A copy that overtook an earlier one
/// could wait for an operation that itself waits for the earlier copy. Any thread.
class PeerCopyStream {
 public:
  explicit PeerCopyStream(std::shared_ptr<CudaStream> stream) noexcept : stream_(std::move(stream)) {}

  /// Appends a copy. Call it in the order of the sequencer's grants, before the sender arrives. Does not block.
  void add(std::shared_ptr<PeerCopy> copy) noexcept;

 private:
  friend class PeerCopy;

  /// Both sides of `copy` have arrived: issues copies from the front of the stream, up to the first one that misses a
  /// side.
  void complete(PeerCopy& copy) noexcept;

  const std::shared_ptr<CudaStream> stream_;
  std::mutex mutex_;
  std::shared_ptr<PeerCopy> first_;  // guarded by mutex_
  PeerCopy* last_ = nullptr;         // guarded by mutex_; valid only if first_ is not null
  bool issuing_ = false;             // guarded by mutex_: a thread issues copies, and will check for more
};

}  // namespace cox::detail
