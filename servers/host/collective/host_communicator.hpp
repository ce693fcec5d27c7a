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

/// What a rank has for an operation, or a group of them, and when it may begin.
struct HostCollective {
  CollectiveRequests requests;
  std::vector<RankBuffers> buffers;     ///< of each request
  HostEvents waits;                     ///< what must be done before
  CollectiveDependencies dependencies;  ///< the collectives among that, and before it
  OperationMemory memory;               ///< what it reads and writes
  std::exception_ptr failure;           ///< why the rank cannot take part
};

/// The streams of a device that its communicators share: the communication stream, and others that help with large
/// operations.
using HostStreamList = std::vector<std::shared_ptr<HostStream>>;

/// One rank of a communicator on host devices: what NCCL calls an ncclComm_t. Its operations run on the device's
/// communication stream, which all communicators of the device share: the sequencer's order is the same on all devices.
///
///     sequencer's turn -> arrive (after what the rank waits for) -> work (all have arrived) -> end (all shares are
///     done)
///
/// No thread waits in any of them. What is refused or given up has no turn, and still ends only behind what its rank
/// was to wait for, and behind the operations before it: its memory may be in use until then. What has ended is counted
/// like the work of a stream, on a slot of its own, so that buffers remember collectives as they do kernels, and
/// streams wait for them alike.
class HostCommunicator : public Communicator {
 public:
  /// The rest as Communicator.
  HostCommunicator(std::shared_ptr<CommunicationGroup> group, CommunicatorNumber number, CommunicationId devices,
                   DeviceId device, HostStreams::TakenSlot slot, std::shared_ptr<const HostStreamList> streams);

  /// Asks for it on behalf of a stream, whose errors get what becomes of it. Returns where its end will be. Device
  /// thread. Throws as Sequencer::submit, and std::bad_alloc; then nothing was asked for.
  StreamPosition submit(HostCollective collective, HostStream& stream);

  /// The operation whose end is at that position.
  [[nodiscard]] CollectiveId operation_at(std::uint64_t position) const noexcept {
    return {number(), position - begin_};
  }
  /// Where the last operation ends that was asked for.
  [[nodiscard]] StreamPosition last_position() const noexcept { return {slot_, last_}; }
  /// Waits for that end, until `deadline` at the latest. Returns whether it has come.
  bool wait_until(std::chrono::steady_clock::time_point deadline) { return timeline_->wait_until(last_, deadline); }
  void wait() { timeline_->wait(last_); }
  /// Nothing is under way, and nothing more will be.
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
  std::uint64_t submitted_ = 0;  // the sequencer may count more: those of a communicator that was forgotten
  const std::shared_ptr<Ends> ends_;
  const std::shared_ptr<std::exception_ptr> ended_;  // why an operation was given up; on the communication stream only
};

}  // namespace cox::detail
