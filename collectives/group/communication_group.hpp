#pragma once

#include <coxswain/collectives/sequencer/sequencer.hpp>
#include <coxswain/collectives/watch/flight_recorder.hpp>
#include <coxswain/device_handle/base/device_id.hpp>
#include <coxswain/device_handle/queue/adaptive_mutex.hpp>
#include <coxswain/runtime/communication/collective_request.hpp>
#include <coxswain/runtime/communication/communication_id.hpp>

#include <chrono>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace cox {

/// The devices of a communicator, as all its ranks know it: one sequence of operations that all of them do together,
/// and one of transfers for each direction between two of them. Any thread.
class CommunicationGroup {
 public:
  /// The sequencer must outlive it. An operation times out that long after its first rank has asked for it, if not all
  /// have; and that long after the first rank's stream has come to it, if not all have.
  CommunicationGroup(Sequencer& sequencer, CommunicationId devices, std::chrono::milliseconds timeout);
  CommunicationGroup(const CommunicationGroup&) = delete;
  CommunicationGroup& operator=(const CommunicationGroup&) = delete;
  /// As close(), without a cause.
  ~CommunicationGroup();

  [[nodiscard]] const CommunicationId& devices() const noexcept { return devices_; }
  [[nodiscard]] Sequencer& sequencer() const noexcept { return sequencer_; }
  [[nodiscard]] std::chrono::milliseconds timeout() const noexcept { return timeout_; }
  /// Of the operations of all ranks.
  [[nodiscard]] CommunicatorNumber number() const noexcept { return all_.number; }
  /// Of the transfers from one device to another; opened when it is first asked for. The ranks in it are those of the
  /// two devices among themselves. Throws CollectiveError Validation (not of this group), Aborted (closed).
  [[nodiscard]] CommunicatorNumber transfers(DeviceId from, DeviceId to);
  /// The communicator that an operation of `device` is one of, and who is in it: all, or the two of a transfer. Throws
  /// as transfers().
  struct Ranks {
    CommunicatorNumber number;
    CommunicationId devices;
  };
  [[nodiscard]] Ranks ranks_of(DeviceId device, const CollectiveRequest& request);
  /// Whether nothing has ended it: no missing rank, no abort, no device that was shut down.
  [[nodiscard]] bool usable() const { return broken() == nullptr; }
  /// What has ended it; nullptr if nothing has.
  [[nodiscard]] std::exception_ptr broken() const;
  /// Refuses what waits for ranks and what comes, with this cause, until the group is renewed.
  void abort(const std::exception_ptr& cause) noexcept;
  /// As abort(), for good. Idempotent.
  void close(const std::exception_ptr& cause) noexcept;
  /// Held while both halves of a transfer are submitted: the n-th on one device belongs to the n-th on the other.
  /// Whoever holds it must not wait for a device.
  [[nodiscard]] std::mutex& pairing() noexcept { return pairing_; }
  /// Throws CollectiveError Aborted, with the cause, if it has been closed.
  void require_open() const;

  /// An operation has failed, as each of its ranks was told. The first time it is logged, and the flight recorders are
  /// written to the file that the setting collectives.dump_file names; blocks for that.
  void report_failure(const std::exception_ptr& error) noexcept;
  /// The flight recorders of all its sequences, as members of a JSON array.
  [[nodiscard]] std::string recorders_to_json() const;

 private:
  using Direction = std::pair<DeviceId, DeviceId>;
  /// One sequence of operations.
  struct OperationSequence {
    CommunicatorNumber number;
    std::shared_ptr<FlightRecorder> recorder;  // stays good when the sequencer has closed the communicator
  };

  [[nodiscard]] OperationSequence open(const CommunicationId& devices) const;
  /// Adds the lane; false if it is there already, or the group has been ended since it was `aborted` or not.
  [[nodiscard]] bool add(std::map<Direction, OperationSequence>& made, bool aborted) noexcept;
  /// Calls `f(lane)` for each, without the lock. Allocates nothing.
  template <class F>
  void for_each_sequence(F&& f) const;
  /// Calls f(); what it throws is reported.
  template <class F>
  void attempt(F&& f) const noexcept;

  Sequencer& sequencer_;
  const CommunicationId devices_;
  const std::chrono::milliseconds timeout_;
  const OperationSequence all_;
  std::mutex pairing_;                                // before all others
  mutable detail::AdaptiveMutex mutex_;               // not held while the sequencer is called: it may call launches
  std::map<Direction, OperationSequence> transfers_;  // guarded by mutex_, as all below
  bool aborted_ = false;
  bool closed_ = false;
  std::exception_ptr cause_;     // of being aborted or closed
  std::exception_ptr reported_;  // all ranks are told the same one
};

}  // namespace cox
