#pragma once

#include <coxswain/collectives/communicator/communicator_rank.hpp>
#include <coxswain/collectives/reduction/in_process_collective.hpp>
#include <coxswain/collectives/sequencer/collective_launch.hpp>
#include <coxswain/collectives/sequencer/collective_submission.hpp>
#include <coxswain/device_handle/base/device_id.hpp>
#include <coxswain/runtime/buffer/operation_memory.hpp>
#include <coxswain/runtime/communication/collective_request.hpp>
#include <coxswain/runtime/memory/stream_position.hpp>
#include <coxswain/servers/host/collective/host_operation.hpp>
#include <coxswain/servers/host/stream/host_stream.hpp>
#include <coxswain/servers/host/stream/host_streams.hpp>
#include <coxswain/servers/host/stream/timeline.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <source_location>
#include <vector>

namespace cox::detail {

class HostRank;

/// A rank's launch: its work in one operation, from the submission to the end.
///
///     released by the sequencer -> arrive (after all that the rank waits for) -> work (after all ranks have arrived)
///     -> end (after all shares are done)
///
/// No thread blocks in any of these steps. A refused operation has no arrive and no work step. Its end still comes only
/// after all that its rank waits for, and after the ends of earlier operations: its memory may be in use until then.
class HostRankLaunch final : public CollectiveLaunch, public std::enable_shared_from_this<HostRankLaunch> {
 public:
  explicit HostRankLaunch(std::shared_ptr<HostRank> rank) noexcept : rank_(std::move(rank)) {}

  /// Allocates all that the launch needs, so that its release cannot fail: the other ranks would wait for this one.
  /// `index`: number of the launch at its rank, counted from 1. `stream`: submits the operation. Device thread. Throws
  /// std::bad_alloc.
  void prepare(std::uint64_t index, const CollectiveRequests& requests, HostStream& stream);
  void take_grant(LaunchGrant&& grant) noexcept override;
  /// Undoes prepare().
  void cancel(const std::exception_ptr& cause) noexcept override;

  std::vector<RankBuffers> buffers;  ///< of each request
  OperationMemory memory;            ///< what the operation reads and writes
  HostEvents waits;                  ///< work that must complete before the operation starts

 private:
  friend class HostRank;
  struct Waiter final : Timeline::Waiter {
    explicit Waiter(HostRankLaunch& launch) noexcept : of(launch) {}
    void reached() noexcept override { of.continue_completing(); }
    HostRankLaunch& of;
  };

  void arrive() noexcept;
  void work() noexcept;
  void end() noexcept;
  void continue_completing() noexcept;
  void complete_after_waits() noexcept;
  void note_end() noexcept;
  void abort_communicator(const std::exception_ptr& cause) noexcept;
  void fail(const std::exception_ptr& error);

  const std::shared_ptr<HostRank> rank_;
  std::uint64_t index_ = 0;
  std::size_t place_ = 0;
  std::shared_ptr<HostStream> origin_stream_;
  std::uint64_t failure_position_ = 0;
  std::shared_ptr<FailureReports> reports_;  // of origin_stream_
  std::source_location site_;                // of the call
  // The steps, each with a reference to this launch. Moved to the streams by the release, dropped by cancel().
  std::unique_ptr<HostStream::Piece> arrive_;
  std::unique_ptr<HostStream::Piece> work_;
  std::unique_ptr<HostStream::Piece> end_;
  std::vector<std::unique_ptr<HostStream::Piece>> help_;  // with the work, each on another stream
  // Set by the release:
  std::uint64_t sequence_ = 0;
  std::shared_ptr<HostOperation> operation_;
  std::exception_ptr refusal_;
  // Of a refused operation:
  Waiter waiter_{*this};
  HostEvent awaited_;
  std::shared_ptr<HostRankLaunch> self_;      // set while it waits: keeps the launch alive
  HostRankLaunch* completes_next_ = nullptr;  // link of a list in continue_completing()
  std::shared_ptr<HostRankLaunch> next_;      // link of HostRank::ahead_; set after the end
};

/// The streams that all ranks of a device share: first the communication stream, then streams that help with large
/// operations.
using HostStreamList = std::vector<std::shared_ptr<HostStream>>;

/// One rank of a communicator on host devices: what NCCL calls an ncclComm_t. Its operations run on the device's
/// communication stream. All ranks of the device share this stream: the sequencer's order is the same on all devices.
/// The ends of the operations are counted on a slot, like the work of a stream. So buffers record collectives as they
/// record kernels, and streams wait for both in the same way. Device thread only, but for the base class and functions
/// marked otherwise. Its launches keep it alive.
class HostRank : public CommunicatorRank, public std::enable_shared_from_this<HostRank> {
 public:
  /// `slot`: where the ends of the operations are counted. The other parameters and the exceptions are those of
  /// CommunicatorRank.
  HostRank(std::shared_ptr<Communicator> communicator, CommunicatorNumber number, CommunicationId devices,
           DeviceId device, HostStreams::TakenSlot slot, std::shared_ptr<const HostStreamList> streams);

  /// Submits the rank's next operation for `stream`; failures of the operation are added to the errors of that stream.
  /// `submission.launch` must be empty: `launch` is passed separately. Returns the position at which the operation
  /// ends. Throws as Sequencer::submit, and std::bad_alloc; then nothing was submitted.
  StreamPosition submit(CollectiveSubmission submission, const std::shared_ptr<HostRankLaunch>& launch,
                        HostStream& stream);

  /// The operation that ends at this position.
  [[nodiscard]] CollectiveId operation_at(std::uint64_t position) const noexcept {
    return {number(), position - begin_};
  }
  /// The position where the last submitted operation ends.
  [[nodiscard]] StreamPosition last_position() const noexcept { return {slot_, last_}; }
  /// Blocks until the last submitted operation has ended, at most until `deadline`. Returns whether it has ended.
  bool wait_until(std::chrono::steady_clock::time_point deadline) { return timeline_->wait_until(last_, deadline); }
  void wait() { timeline_->wait(last_); }
  /// No operation is in flight, and all future submissions are refused.
  [[nodiscard]] bool is_finished() const { return timeline_->reached(last_) && refuses_all(); }

  // For its launches, any thread:

  /// Whether this is the end of an operation of this rank.
  [[nodiscard]] bool is_own(const HostEvent& event) const noexcept { return event.timeline == timeline_; }

  [[nodiscard]] const HostStreamList& streams() const noexcept { return *streams_; }
  /// Publishes the end of a launch. Launches may end in any order; their ends are published in the order of submission.
  void publish_end(std::shared_ptr<HostRankLaunch> ended) noexcept;
  std::exception_ptr aborted;  ///< Why an operation was aborted. Communication stream only.

 private:
  const StreamSlot slot_;
  const std::shared_ptr<Timeline> timeline_;
  const std::shared_ptr<const HostStreamList> streams_;
  const std::uint64_t begin_;  // operation n ends at begin_ + n
  std::uint64_t last_;
  std::uint64_t submitted_ = 0;            // the sequencer may have counted more, of an earlier HostRank
  alignas(64) std::mutex ending_;          // this and the rest: used by stream threads
  std::uint64_t ended_ = 0;                // launches whose end is published; guarded by ending_
  std::shared_ptr<HostRankLaunch> ahead_;  // ended before an earlier launch, sorted by index; guarded by ending_
};

}  // namespace cox::detail
