#include <coxswain/servers/host/detail/host_meeting.hpp>

#include <coxswain/collectives/device_activity.hpp>
#include <coxswain/collectives/watchdog.hpp>
#include <coxswain/runtime/communication/collective_error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>

namespace cox::detail {
namespace {

// Bytes of each rank that one thread moves sooner than it wakes the others, and that are worth a share of their own.
constexpr std::size_t most_at_once = std::size_t{16} << 10U;
constexpr std::size_t bytes_of_share = std::size_t{1} << 20U;

std::size_t bytes_of(const CollectiveRequests& requests) noexcept {
  std::size_t bytes = 0;
  for (const CollectiveRequest& request : requests) bytes += request.count * element_size(request.element_type);
  return bytes;
}

// One where there is little to do; else so many that no thread has much more to do than another at the end.
std::size_t shares_of(const CollectiveRequests& requests, std::size_t ranks) noexcept {
  const std::size_t bytes = bytes_of(requests);
  return bytes <= most_at_once ? 1 : ranks * std::clamp<std::size_t>(bytes / bytes_of_share, 1, 8);
}

/// Looks after the deadlines of all meetings of the process.
class MeetingWatch {
 public:
  // Never destroyed: the watchdog's thread may be asleep when the process ends.
  static MeetingWatch& of_process() {
    static auto& watch = *new MeetingWatch;
    return watch;
  }

  // Throws std::bad_alloc, std::system_error; then whoever made the meeting destroys it.
  void add(HostMeeting& meeting, HostMeeting::Time deadline) {
    {
      const std::lock_guard lock(mutex_);
      meetings_.insert(&meeting);
    }
    watch(deadline);
  }
  void remove(HostMeeting& meeting) noexcept {
    const std::lock_guard lock(mutex_);
    meetings_.erase(&meeting);
  }
  void watch(HostMeeting::Time deadline) { watchdog_.watch(deadline); }
  void look_again() { watchdog_.look_again(); }

 private:
  // One after the other, so that no memory is needed: nobody could be told that there is none.
  std::optional<HostMeeting::Time> look(HostMeeting::Time now) noexcept {
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
      due->give_up();
    }
  }

  std::mutex mutex_;                 // before the meetings'
  std::set<HostMeeting*> meetings_;  // guarded by mutex_
  Watchdog watchdog_{[this](HostMeeting::Time now) { return look(now); }};
};

}  // namespace

HostMeeting::HostMeeting(CollectiveRequests requests, std::vector<DeviceId> places, std::chrono::milliseconds timeout)
    : requests_(std::move(requests)),
      places_(std::move(places)),
      timeout_(timeout),
      shares_(shares_of(requests_, places_.size())),
      buffers_(requests_.size() * places_.size()),
      // Until it opens the ranks' own deadline runs, so that it is still being looked after when it does.
      deadline_(std::chrono::steady_clock::now() + 2 * timeout),
      came_(places_.size()),
      missing_(places_.size()) {}

std::shared_ptr<HostMeeting> HostMeeting::make(CollectiveRequests requests, std::vector<DeviceId> places,
                                               std::chrono::milliseconds timeout) {
  auto made = std::make_shared<HostMeeting>(std::move(requests), std::move(places), timeout);
  MeetingWatch::of_process().add(*made, made->deadline_);
  return made;
}

void HostMeeting::rest() { MeetingWatch::of_process().look_again(); }

HostMeeting::~HostMeeting() { MeetingWatch::of_process().remove(*this); }

void HostMeeting::open(std::uint64_t sequence) noexcept {
  Time deadline;
  {
    const std::lock_guard lock(mutex_);
    if (sequence_ != 0 || failure_ != nullptr) return;
    sequence_ = sequence;
    deadline_ = deadline = std::chrono::steady_clock::now() + timeout_;
  }
  MeetingWatch::of_process().watch(deadline);  // its thread runs: this meeting is there
}

void HostMeeting::bring(std::size_t place, const std::vector<RankBuffers>& buffers) noexcept {
  for (std::size_t i = 0; i < buffers.size(); ++i) buffers_[i * ranks() + place] = buffers[i];
}

void HostMeeting::arrive(std::size_t place) noexcept {
  bool last = false;
  {
    const std::lock_guard lock(mutex_);
    if (failure_ != nullptr) return;
    came_[place] = true;
    --missing_;
    last = missing_ == 0;
  }
  if (last && shares_ == 1) work();
  arrived.advance();
}

void HostMeeting::work() noexcept {
  if (failure_ != nullptr) return;
  // Relaxed: shares are given out once each; `arrived` and `done` order the memory.
  for (std::size_t share = 0; (share = next_share_.fetch_add(1, std::memory_order_relaxed)) < shares_;) {
    for (std::size_t i = 0; i < requests_.size(); ++i)
      run_share(requests_[i], {&buffers_[i * ranks()], ranks()}, share, shares_);
    done.advance();
  }
}

bool HostMeeting::wants_helpers(const CollectiveRequests& requests) noexcept {
  return bytes_of(requests) >= bytes_of_share;
}

HostMeeting::Time HostMeeting::deadline() const {
  const std::lock_guard lock(mutex_);
  return missing_ == 0 || failure_ != nullptr ? Time::max() : deadline_;
}

void HostMeeting::give_up() noexcept {
  const std::exception_ptr why = overdue();  // takes locks of the device threads
  {
    const std::lock_guard lock(mutex_);
    if (missing_ == 0 || failure_ != nullptr) return;
    failure_ = why;
  }
  arrived.advance_to(ranks());
  done.advance_to(shares_);  // no share will be begun
}

std::exception_ptr HostMeeting::overdue() const noexcept {
  try {
    return std::make_exception_ptr(
        CollectiveError(CollectiveError::Kind::Timeout, overdue_text(), requests_.front().caller.site));
  } catch (...) {
    return std::current_exception();  // no memory to say it
  }
}

std::string HostMeeting::overdue_text() const {
  std::vector<bool> came;
  std::uint64_t sequence = 0;
  {
    const std::lock_guard lock(mutex_);
    came = came_;
    sequence = sequence_;
  }
  std::string text = fmt::format("operation {}, {}, has all its ranks, but has not begun after {} ms", sequence,
                                 to_string(requests_), timeout_.count());
  for (std::size_t place = 0; place < came.size(); ++place)
    if (!came[place])
      text += fmt::format("; the work before it on {} has not ended, its device thread: {}", places_[place].to_string(),
                          device_activity(places_[place]));
  return text;
}

}  // namespace cox::detail
