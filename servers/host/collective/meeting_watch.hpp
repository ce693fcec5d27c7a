#pragma once

#include <coxswain/collectives/watch/watchdog.hpp>
#include <coxswain/servers/host/collective/host_meeting.hpp>

#include <memory>
#include <mutex>
#include <optional>
#include <set>

namespace cox::detail {

/// Looks after the deadlines of all meetings of the process: those whose time is up time out. Any thread.
///
/// A meeting need not say when its deadline changes. It is looked at whenever one is due, and until somebody has come
/// to it, that is a timeout ahead of the last look: no later than the deadline that the first to come sets.
class MeetingWatch {
 public:
  /// Never destroyed: the watchdog's thread may be asleep when the process ends.
  [[nodiscard]] static MeetingWatch& of_process();

  /// Throws std::bad_alloc, std::system_error (no thread); the meeting must be removed in any case.
  void add(HostMeeting& meeting);
  /// Before the meeting is destroyed. Does nothing if it is not there.
  void remove(HostMeeting& meeting) noexcept;
  /// Ends the thread if no meeting needs it. After a shutdown.
  void rest() { watchdog_.look_again(); }

 private:
  std::optional<HostMeeting::Time> look(HostMeeting::Time now) noexcept;

  std::mutex mutex_;                 // before the meetings'
  std::set<HostMeeting*> meetings_;  // guarded by mutex_
  Watchdog watchdog_{[this](HostMeeting::Time now) { return look(now); }};
};

}  // namespace cox::detail
