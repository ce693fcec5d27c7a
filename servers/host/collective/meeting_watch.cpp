#include <coxswain/servers/host/collective/meeting_watch.hpp>

#include <algorithm>

namespace cox::detail {

MeetingWatch& MeetingWatch::of_process() {
  static auto& watch = *new MeetingWatch;
  return watch;
}

void MeetingWatch::add(HostMeeting& meeting) {
  {
    const std::lock_guard lock(mutex_);
    meetings_.insert(&meeting);
  }
  watchdog_.watch(meeting.deadline());
}

void MeetingWatch::remove(HostMeeting& meeting) noexcept {
  const std::lock_guard lock(mutex_);
  meetings_.erase(&meeting);
}

// One after the other, so that no memory is needed: nobody could be told that there is none.
std::optional<HostMeeting::Time> MeetingWatch::look(HostMeeting::Time now) noexcept {
  for (;;) {
    std::optional<HostMeeting::Time> next;
    std::shared_ptr<HostMeeting> due;
    {
      const std::lock_guard lock(mutex_);
      for (HostMeeting* const meeting : meetings_) {
        const HostMeeting::Time deadline = meeting->deadline();
        if (deadline > now) {
          next = std::min(next.value_or(deadline), deadline);
        } else if (due == nullptr) {
          due = meeting->weak_from_this().lock();
        }
      }
    }
    if (due == nullptr) return next;
    due->time_out();
  }
}

}  // namespace cox::detail
