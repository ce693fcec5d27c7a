#pragma once

#include <coxswain/collectives/group/communicator.hpp>
#include <coxswain/collectives/reduction/in_process_collective.hpp>
#include <coxswain/collectives/sequencer/collective_submission.hpp>
#include <coxswain/runtime/buffer/operation_memory.hpp>
#include <coxswain/runtime/communication/collective_request.hpp>
#include <coxswain/runtime/memory/stream_position.hpp>
#include <coxswain/servers/host/stream/host_stream.hpp>
#include <coxswain/servers/host/stream/host_streams.hpp>
#include <coxswain/servers/host/stream/timeline.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <vector>

namespace cox::detail {

/// Input of one rank to an operation, or to a group of them: requests, memory and dependencies.
struct HostCollective {
  CollectiveRequests requests;
  std::vector<RankBuffers> buffers;     ///< of each request
  HostEvents waits;                     ///< work that must complete before the operation starts
  CollectiveDependencies dependencies;  ///< collectives that `waits` contains or depends on
  OperationMemory memory;               ///< memory that the operation reads and writes
  std::exception_ptr failure;           ///< why the rank cannot take part
};

/// The streams that all communicators of a device share: first the communication stream, then streams that help with
/// large operations.
using HostStreamList = std::vector<std::shared_ptr<HostStream>>;

/// One rank of a communicator on host devices: what NCCL calls an ncclComm_t. Its operations run on the device's
/// communication stream. All communicators of the device share this stream: the sequencer's order is the same on all
/// devices.
///
///     launch granted by the sequencer -> arrive (after all that the rank waits for) -> work (after all ranks have
///     arrived) -> end (after all shares are done)
///
/// No thread blocks in any of these steps. A refused operation has no arrive and no work step. Its end still comes only
/// after all that its rank waits for, and after the ends of earlier operations: its memory may be in use until then.
/// The ends are counted on a slot, like the work of a stream. So buffers record collectives as they record kernels, and
/// streams wait for both in the same way.
class HostCommunicator : public Communicator {
 public:
  /// `slot`: where the ends of the operations are counted. The other parameters and the exceptions are those of
  /// Communicator.
  HostCommunicator(std::shared_ptr<CommunicationGroup> group, CommunicatorNumber number, CommunicationId devices,
                   DeviceId device, HostStreams::TakenSlot slot, std::shared_ptr<const HostStreamList> streams);

  /// Submits the rank's part on behalf of `stream`; its failures join the errors of that stream. Returns the position
  /// of its end. Device thread. Throws as Sequencer::submit, and std::bad_alloc; then nothing was submitted.
  StreamPosition submit(HostCollective collective, HostStream& stream);

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

 private:
  struct Part;
  class Ends;

  [[nodiscard]] CollectiveLaunch make_launch(HostCollective& collective, HostStream& stream) const;

  const StreamSlot slot_;
  const std::shared_ptr<Timeline> timeline_;
  const std::shared_ptr<const HostStreamList> streams_;
  const std::uint64_t begin_;  // operation n ends at begin_ + n
  std::uint64_t last_;
  std::uint64_t submitted_ = 0;  // the sequencer may have counted more, of an earlier HostCommunicator
  const std::shared_ptr<Ends> ends_;
  const std::shared_ptr<std::exception_ptr> ended_;  // why an operation was aborted; communication stream only
};

}  // namespace cox::detail
