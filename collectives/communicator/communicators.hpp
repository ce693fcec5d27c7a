#pragma once

#include <coxswain/collectives/communicator/communicator.hpp>
#include <coxswain/collectives/sequencer/sequencer.hpp>
#include <coxswain/device_handle/base/device_id.hpp>
#include <coxswain/device_handle/queue/adaptive_mutex.hpp>
#include <coxswain/runtime/communication/communication_id.hpp>
#include <coxswain/runtime/communication/membership_epoch.hpp>

#include <cstdint>
#include <map>
#include <memory>
#include <source_location>
#include <string>
#include <vector>

namespace cox {

/// All communicators of the process, one for each set of devices, and the sequencer that orders their operations. Any
/// thread.
class Communicators {
 public:
  explicit Communicators(SequencerOptions options) : sequencer_(std::move(options)) {}

  /// The object of the process. The first call creates it with the current settings collectives.*. Never destroyed,
  /// because devices that are shut down at process exit still call leave().
  [[nodiscard]] static Communicators& of_process();

  /// Returns the communicator of that set of devices, or opens it. If opening fails, the next call tries again. Throws
  /// CollectiveError Aborted if one of the devices was shut down and has not been opened again (L16).
  [[nodiscard]] std::shared_ptr<Communicator> find_or_open(const CommunicationId& devices) {
    return find_or_open(devices, MembershipEpoch::current(), {});
  }
  /// Returns or opens the communicator for the call at `site` that was made in epoch `call_epoch`. Throws Aborted also
  /// if one of the devices was shut down since, or the communicator was replaced: the matching calls of the other ranks
  /// may have been refused before, so this one would wait in vain.
  [[nodiscard]] std::shared_ptr<Communicator> find_or_open(const CommunicationId& devices, MembershipEpoch call_epoch,
                                                           std::source_location site);
  /// Returns and throws what find_or_open() does, but replaces a communicator that is not usable() any more: closes it
  /// and opens a new one. Operations of ranks that still hold the old communicator are refused, so none of them is
  /// taken for an operation of the new communicator.
  [[nodiscard]] std::shared_ptr<Communicator> renew(const CommunicationId& devices);
  /// A server of the device is in service. Its generation is unique and not 0. From now on communicators with the
  /// device can be opened, even if the device has left before.
  void join(DeviceId device, std::uint64_t generation);
  /// Calls join() on the object of the process, or when it is created later.
  static void join_in_process(DeviceId device, std::uint64_t generation);
  /// The server is being destroyed and submits no further operations: see Sequencer::leave. Removes and returns the
  /// communicators of its device. The caller must wait for the operations that it has submitted, then close these
  /// communicators. Does nothing if the server was never in service, or its shutdown was abandoned.
  [[nodiscard]] std::vector<std::shared_ptr<Communicator>> leave(DeviceId device, std::uint64_t generation);
  /// The server is closing, and none of its queued calls will submit an operation. The device leaves at once; the later
  /// call of leave() returns its communicators.
  void leave_closing(DeviceId device, std::uint64_t generation) noexcept;
  /// The shutdown of the device ended as Abandoned, so its rank submits no further operations. The device leaves, and
  /// its communicators are closed.
  void leave_abandoned(DeviceId device) noexcept;

  [[nodiscard]] Sequencer& sequencer() noexcept { return sequencer_; }
  /// The flight recorders of all communicators, in the order of their devices, as a JSON array.
  [[nodiscard]] std::string recorders_to_json() const;

 private:
  Sequencer sequencer_;
  mutable detail::AdaptiveMutex mutex_;  // locked before those of the communicators and the sequencer
  MembershipEpoch require_none_left(const CommunicationId& devices, MembershipEpoch call_epoch,
                                    std::source_location site) const;

  struct Member {
    std::uint64_t server = 0;                             // the generation of the server in service; 0: there is none
    bool has_left = false;                                // it has left, and no server has joined since
    MembershipEpoch left_epoch;                           // the epoch that began when it last left
    std::vector<std::shared_ptr<Communicator>> unclosed;  // to be returned by leave()
  };
  void end_membership(DeviceId device, Member& member);
  [[nodiscard]] std::vector<std::shared_ptr<Communicator>> leave_sequencer(DeviceId device);

  struct Opened {
    std::shared_ptr<Communicator> communicator;
    MembershipEpoch since;  // since that epoch began, no member has left, and it was not replaced
  };
  std::map<CommunicationId, Opened>
      communicators_;                   // only of devices that have not left; guarded by mutex_, as all below
  std::map<DeviceId, Member> members_;  // each device that has ever had a server
  // The epoch that began when the communicator was last replaced. What was called before, on some ranks, may have been
  // carried out by the former communicator on others.
  std::map<CommunicationId, MembershipEpoch> replaced_;
};

/// The flight recorders of all communicators of the process, in the order of their devices, as a JSON array of objects:
/// see FlightRecorder::to_json.
[[nodiscard]] std::string dump_flight_recorders();

}  // namespace cox
