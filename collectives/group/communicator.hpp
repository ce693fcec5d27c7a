#pragma once

#include <coxswain/collectives/group/communication_group.hpp>
#include <coxswain/collectives/sequencer/collective_submission.hpp>
#include <coxswain/collectives/watch/communicator_number.hpp>
#include <coxswain/collectives/watch/flight_recorder.hpp>
#include <coxswain/device_handle/base/device_id.hpp>
#include <coxswain/runtime/communication/collective_request.hpp>
#include <coxswain/runtime/communication/communication_id.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace cox {

/// One rank of a communicator: what NCCL calls an ncclComm_t. What it is and how it asks for operations; how they are
/// launched is up to the kind of device. Device thread of its device.
class Communicator {
 public:
  /// `devices`: those of the communicator, which are all of the group, or the two of a way of transfers. Throws
  /// CollectiveError Aborted (the group is closed), Validation (`device` is not one of them).
  Communicator(std::shared_ptr<CommunicationGroup> group, CommunicatorNumber number, CommunicationId devices,
               DeviceId device);
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  [[nodiscard]] const CommunicationId& devices() const noexcept { return devices_; }
  [[nodiscard]] CommunicatorNumber number() const noexcept { return number_; }
  [[nodiscard]] std::size_t rank() const noexcept { return rank_; }
  [[nodiscard]] std::size_t world_size() const noexcept { return devices_.world_size(); }
  [[nodiscard]] const std::shared_ptr<CommunicationGroup>& group() const noexcept { return group_; }
  [[nodiscard]] const std::shared_ptr<FlightRecorder>& recorder() const noexcept { return recorder_; }
  /// Whether all that this rank asks for from now on is refused, for good.
  [[nodiscard]] bool refuses_all() const { return group_->sequencer().refuses_all_of(number_, rank_); }

  /// Gives the communicator up for all ranks: see Sequencer::abort. Returns what it is refused with from now on.
  [[nodiscard]] std::exception_ptr abort(const std::exception_ptr& cause) noexcept;

  /// Asks for the rank's next operation: see Sequencer::submit.
  std::uint64_t submit_to_sequencer(CollectiveSubmission submission) {
    return group_->sequencer().submit(number_, rank_, std::move(submission));
  }
  /// As that for each of them, up to the first that cannot be asked for. Returns how many were.
  std::size_t submit_to_sequencer(std::span<CollectiveSubmission> submissions) {
    return group_->sequencer().submit(number_, rank_, submissions).count;
  }

  /// The devices in the order in which an operation names them: of a transfer the sender, then the receiver; else all,
  /// by rank. `request` is of this rank.
  [[nodiscard]] std::vector<DeviceId> devices_in_order(const CollectiveRequest& request) const;
  /// This device's place there.
  [[nodiscard]] std::size_t place(const CollectiveRequest& request) const noexcept {
    if (!is_transfer(request.operation)) return rank_;
    return request.operation == CollectiveOperation::Send ? 0 : 1;
  }

 protected:
  ~Communicator() = default;

 private:
  const std::shared_ptr<CommunicationGroup> group_;
  const CommunicatorNumber number_;
  const CommunicationId devices_;
  const std::size_t rank_;
  const std::shared_ptr<FlightRecorder> recorder_;
};

/// The rank could not ask for its operation; called where that is caught. What was not asked for has no number: were
/// the rank to go on, it would meet the others' wrong operations. So it ends for all: the communicator, or all of the
/// group's where the rank has not even found that (null). Throws what it is refused with from now on.
[[noreturn]] void abort_pending(CommunicationGroup& group, Communicator* communicator);

}  // namespace cox
