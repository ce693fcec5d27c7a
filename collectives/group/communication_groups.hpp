#pragma once

#include <coxswain/collectives/group/communication_group.hpp>
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

/// All communicators of the process, one for each set of devices, and what puts their operations in order. Any thread.
class CommunicationGroups {
 public:
  using Group = std::shared_ptr<CommunicationGroup>;

  explicit CommunicationGroups(SequencerOptions options) : sequencer_(std::move(options)) {}

  /// Those of the process, made with the settings collectives.* that are in force at the first call. Never destroyed:
  /// devices that are shut down at process exit still take leave of it.
  [[nodiscard]] static CommunicationGroups& of_process();

  /// Finds the group of that set of devices, or opens it. A failed opening is tried again by the next call. Throws
  /// CollectiveError Aborted if one of the devices was shut down and has not been opened again (L16).
  [[nodiscard]] Group find_or_open(const CommunicationId& devices) {
    return find_or_open(devices, MembershipEpoch::current(), {});
  }
  /// As above, for the call at `site` that was made in epoch `call_epoch`. Throws Aborted, too, if one of the devices
  /// was shut down since: the other ranks' calls were refused then, and none of them will meet this one.
  [[nodiscard]] Group find_or_open(const CommunicationId& devices, MembershipEpoch call_epoch,
                                   std::source_location site);
  /// As find_or_open(), and throws as it does; a group that is not usable() any more is closed, and a new one takes its
  /// place. Ranks that still hold the old one are refused, so nothing that was meant for it is taken for an operation
  /// of the new one.
  [[nodiscard]] Group renew(const CommunicationId& devices);
  /// A server of that generation, which no other server has and is not 0, is in service; communicators with its device
  /// can be opened, even if it has left before.
  void join(DeviceId device, std::uint64_t generation);
  /// Calls join() on the groups of the process, also if they are made later.
  static void join_in_process(DeviceId device, std::uint64_t generation);
  /// The server is being destroyed and will ask for nothing any more: see Sequencer::leave. The groups of its device
  /// are found no more; the caller closes those that are returned when it has waited for what it asked for. Does
  /// nothing if it was never in service, or was abandoned.
  [[nodiscard]] std::vector<Group> leave(DeviceId device, std::uint64_t generation);
  /// The server is closing, and no call that has been accepted will ask for anything any more. As leave(), which is
  /// still to come and returns the groups.
  void leave_closing(DeviceId device, std::uint64_t generation) noexcept;
  /// The shutdown of the device ended as Abandoned: its rank submits nothing any more. As leave(), and its groups are
  /// closed.
  void leave_abandoned(DeviceId device) noexcept;

  [[nodiscard]] Sequencer& sequencer() noexcept { return sequencer_; }
  /// The flight recorders of all groups, in the order of their devices: a JSON array.
  [[nodiscard]] std::string recorders_to_json() const;

 private:
  Sequencer sequencer_;
  mutable detail::AdaptiveMutex mutex_;  // before the groups' and the sequencer's
  MembershipEpoch require_none_left(const CommunicationId& devices, MembershipEpoch call_epoch,
                                    std::source_location site) const;

  struct Member {
    std::uint64_t server = 0;     // the generation of the one in service; 0: there is none
    bool has_left = false;        // it has left, and no server has arrived since
    MembershipEpoch left_epoch;   // began when it left last
    std::vector<Group> unclosed;  // for leave() to return
  };
  void end_membership(DeviceId device, Member& member);
  [[nodiscard]] std::vector<Group> leave_sequencer(DeviceId device);

  struct Opened {
    Group group;
    MembershipEpoch since;  // no member has left since that epoch began
  };
  std::map<CommunicationId, Opened> groups_;  // of devices that are not away; guarded by mutex_, as all below
  std::map<DeviceId, Member> members_;        // each device that has ever had a server
};

/// The flight recorders of all communicators of the process, in the order of their devices, as a JSON array of objects:
/// see FlightRecorder::to_json.
[[nodiscard]] std::string dump_flight_recorders();

}  // namespace cox
