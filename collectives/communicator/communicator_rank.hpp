#pragma once

#include <coxswain/collectives/communicator/communicator.hpp>
#include <coxswain/collectives/watch/communicator_number.hpp>
#include <coxswain/collectives/watch/flight_recorder.hpp>
#include <coxswain/device_handle/base/device_id.hpp>
#include <coxswain/runtime/communication/collective_request.hpp>
#include <coxswain/runtime/communication/communication_id.hpp>

#include <cstddef>
#include <exception>
#include <memory>
#include <optional>
#include <vector>

namespace cox {

/// One rank of a communicator, equivalent to an ncclComm_t. Holds what is known of the rank; a derived class of each
/// kind of device submits its operations. Any thread.
class CommunicatorRank {
 public:
  /// `number`: the sequence that it takes part in. `devices`: of that sequence: all of the communicator, or the two of
  /// a transfer direction. Throws CollectiveError Aborted (the communicator is closed), Validation (`device` is not one
  /// of `devices`).
  CommunicatorRank(std::shared_ptr<Communicator> communicator, CommunicatorNumber number, CommunicationId devices,
                   DeviceId device);
  CommunicatorRank(const CommunicatorRank&) = delete;
  CommunicatorRank& operator=(const CommunicatorRank&) = delete;

  [[nodiscard]] const CommunicationId& devices() const noexcept { return devices_; }
  [[nodiscard]] CommunicatorNumber number() const noexcept { return number_; }
  [[nodiscard]] std::size_t rank() const noexcept { return rank_; }
  /// What its sequence is to other processes; nothing if it has no ranks of other processes.
  [[nodiscard]] const std::optional<SharedSequence>& shared() const noexcept { return shared_; }
  /// The device, by its name in this process.
  [[nodiscard]] DeviceId device() const noexcept { return device_; }
  /// Whether this rank creates the objects that all ranks of this process share, such as
  /// CollectiveSubmission::operation: the first one of them.
  [[nodiscard]] bool is_first_of_process() const noexcept { return is_first_of_process_; }
  [[nodiscard]] std::size_t world_size() const noexcept { return devices_.world_size(); }
  [[nodiscard]] const std::shared_ptr<Communicator>& communicator() const noexcept { return communicator_; }
  [[nodiscard]] const std::shared_ptr<FlightRecorder>& recorder() const noexcept { return recorder_; }
  /// Whether all later submissions of this rank are refused, permanently.
  [[nodiscard]] bool refuses_all() const { return communicator_->sequencer().refuses_all_of(number_, rank_); }

  /// Aborts the sequence for all ranks: see Sequencer::abort. Returns the error of all later operations.
  [[nodiscard]] std::exception_ptr abort(const std::exception_ptr& cause) noexcept;

  /// The devices of an operation in their order: for a transfer the sender, then the receiver; else all devices by
  /// rank. `request` is this rank's request.
  [[nodiscard]] std::vector<DeviceId> devices_in_order(const CollectiveRequest& request) const;
  /// This device's index in devices_in_order().
  [[nodiscard]] std::size_t place(const CollectiveRequest& request) const noexcept {
    if (!is_transfer(request.operation)) return rank_;
    return request.operation == CollectiveOperation::Send ? 0 : 1;
  }

 protected:
  ~CommunicatorRank() = default;

 private:
  const std::shared_ptr<Communicator> communicator_;
  const CommunicatorNumber number_;
  const CommunicationId devices_;
  const DeviceId device_;
  const std::size_t rank_;
  const bool is_first_of_process_;
  const std::shared_ptr<FlightRecorder> recorder_;
  const std::optional<SharedSequence> shared_;
};

/// Aborts after a rank's submission has failed; called in the handler of the exception. The operation has no number, so
/// the rank's later operations would be matched with the wrong operations of the other ranks. So the sequence of `rank`
/// is aborted for all ranks, or, if `rank` is null because it has not been found yet, the whole communicator. Throws
/// the error with which later operations are refused.
[[noreturn]] void abort_pending(Communicator& communicator, CommunicatorRank* rank);

}  // namespace cox
