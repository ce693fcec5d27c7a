#pragma once

#include <coxswain/collectives/sequencer/collective_launch.hpp>
#include <coxswain/collectives/sequencer/collective_submission.hpp>
#include <coxswain/collectives/watch/communicator_number.hpp>
#include <coxswain/collectives/watch/flight_recorder.hpp>
#include <coxswain/collectives/watch/watchdog.hpp>
#include <coxswain/device_handle/base/device_id.hpp>
#include <coxswain/device_handle/queue/adaptive_mutex.hpp>
#include <coxswain/runtime/communication/communication_id.hpp>
#include <coxswain/runtime/handle/recycled_memory.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace cox {

namespace detail {
struct QueuedSubmission;
class CommunicatorSequence;
class OpenCommunicators;
struct StalledOperation;
}  // namespace detail

struct SequencerOptions {
  /// Operations that a rank may be ahead of the slowest rank of its communicator (L7). One more is CallError QueueFull:
  /// a thread that waited there could be the one that the others wait for.
  std::size_t max_ahead = 1024;
  /// What the flight recorder of each communicator keeps.
  std::size_t recorded_operations = 1024;
  /// Says what the device's thread is doing, for the error that names a missing rank. Called with no lock held.
  std::function<std::string(DeviceId)> device_activity = {};
  /// A thread that waits for an operation which misses ranks is told so after this time; 0: never.
  std::chrono::milliseconds explain_after{0};
  /// The devices that threads have been seen to wait for, each in one wait of `at_least` so long. Called now and then
  /// while there are operations, with no lock held.
  std::function<std::vector<DeviceId>(Watchdog::Time now, std::chrono::milliseconds at_least)> awaited_devices = {};
  /// Tells it. Called with no lock held.
  std::function<void(const std::string& text)> explain = {};
  /// The clock of the deadlines; std::chrono::steady_clock if empty. Any thread, under locks: must not call back.
  std::function<Watchdog::Time()> now = {};
};

/// Launches operations on several devices so that the devices cannot deadlock, whatever the order in which threads ask.
/// There must be one for all communicators of a process: two know nothing of each other.
///
/// - The n-th submission of a rank on a communicator belongs to the n-th of each other rank. When all have come and
/// agree,
///   and every operation that any of them is to come after is resolved, all their launches are released: nobody
///   launches, and no device waits, for a set that is incomplete.
/// - Released operations are in one order for the whole process. Every device gets its launches in that
///   order, whichever communicators they are of: of two operations, the same is first on every device that takes part
///   in both.
/// - Every launch is called exactly once (L2): launched, or refused with a CollectiveError (with std::bad_alloc where
///   there is no memory for one). The grants of one rank on one communicator come in the order of its submissions.
///
/// Why devices with one communication stream each cannot deadlock: of the launched operations that have not ended,
/// take the first in the one order. Nothing is before it on its devices' streams, so it has begun on all of them; and
/// what its ranks' compute streams wait for was released before it or refused, so has ended. So it ends, and the next.
///
///     submit --(all are there, all before are resolved)--> queue of device 0 --> launch, launch, ...   filled under
///     the
///                                                          queue of device 1 --> launch, launch, ...   lock, all at
///                                                          once
///
/// Each device's launch queue is drained without the lock by a thread that filled it, one at a time. A launch may
/// therefore be called by any thread, and slightly after the submit() that released it has returned. The exception are
/// the launches for a device's launch thread: see set_launch_thread(). All functions may be called by any thread, also
/// by a launch, and block for a short lock at most.
class Sequencer {
 public:
  using Time = Watchdog::Time;

  explicit Sequencer(SequencerOptions options = {});
  Sequencer(const Sequencer&) = delete;
  Sequencer& operator=(const Sequencer&) = delete;
  /// Closes all communicators. Nobody may be in a call, and not inside a launch.
  ~Sequencer();

  /// An operation times out this long after the first rank has asked for it.
  [[nodiscard]] CommunicatorNumber open(CommunicationId devices, std::chrono::milliseconds timeout);
  /// Returns the operation's number on its communicator: a rank's n-th submit is operation n, always. The operation is
  /// refused for all ranks, those to come too, when ranks ask for different things (CollectiveError Mismatch), when one
  /// cannot take part (RankFailed), or when this submission makes operations wait for each other in a ring
  /// (WouldDeadlock); the communicator goes on with the next one. Throws CallError QueueFull (see max_ahead),
  /// CollectiveError Validation (no such rank, no request) or Aborted (closed), std::system_error (no thread for the
  /// deadlines) and std::bad_alloc; then no number is used, the launch is not called, and nothing has changed.
  std::uint64_t submit(CommunicatorNumber communicator, std::size_t rank, CollectiveSubmission submission);
  /// The rank's operations that were accepted: `count` from number `first` on.
  struct Accepted {
    std::uint64_t first;
    std::size_t count;
  };
  /// As that for each of them, in their order, up to the first that cannot be accepted, under one lock. Throws if that
  /// is the very first. What is not accepted stays as it is.
  Accepted submit(CommunicatorNumber communicator, std::size_t rank, std::span<CollectiveSubmission> submissions);
  /// From now on the device's launches that are `on_launch_thread`, and those after them, are called by
  /// drain_launches() alone. So each device thread does its own, whose memory is in its cache, instead of one doing
  /// all. `notify` is called when there are some: it must have drain_launches() called, and neither block nor wait nor
  /// throw. An empty function: as without one.
  void set_launch_thread(DeviceId device, std::function<void()> notify);
  /// Calls the launches of which the device was notified. One thread at a time for each device.
  void drain_launches(DeviceId device) noexcept;
  /// Refuses what is not released yet on the communicator, and all that comes, with CollectiveError Aborted and this
  /// cause. What was released stays so. Nothing happens if it is closed, timed out or aborted already.
  void abort(CommunicatorNumber communicator, const std::exception_ptr& cause);
  /// The device is being shut down and submits nothing any more. On every communicator that it is in, the operations
  /// that it has submitted may still be released; those after them are refused with CollectiveError Aborted, at once
  /// or when they come. Idempotent.
  void leave(DeviceId device);
  /// As abort(), for good: nothing is taken any more. Idempotent.
  void close(CommunicatorNumber communicator);
  /// Why all that is submitted now is refused: a timeout, an abort, a device that has left, or closed; nullptr: it is
  /// not. Stays so: the devices go on with a new communicator.
  [[nodiscard]] std::exception_ptr broken(CommunicatorNumber communicator) const;
  /// Whether everything is refused, for good, that this rank submits from now on: it is broken(), and the rank has
  /// submitted what a device that has left had submitted before.
  [[nodiscard]] bool refuses_all_of(CommunicatorNumber communicator, std::size_t rank) const;

  /// Times out what is overdue at `now`: all who did arrive are refused with CollectiveError Timeout, which names the
  /// missing ranks, each one's last operation, and what its device is doing; if the operation was held back, what it
  /// waited for, through which rank, and who is missing there. So is everything that was submitted after it or comes,
  /// as nobody knows any more what belongs together. Returns the next deadline, if there is one. Called by a watchdog
  /// thread that exists only while there is a deadline.
  std::optional<Time> expire(Time now);

  /// No deadline passes from here to thaw(), which moves all that are set by as long: ranks are kept from asking, and
  /// it is not their fault. May be nested.
  void freeze() noexcept;
  void thaw() noexcept;

  /// Stays good after close(). Throws CollectiveError Aborted (closed).
  [[nodiscard]] std::shared_ptr<FlightRecorder> recorder(CommunicatorNumber communicator) const;
  /// Whether something waits for a deadline, or did a moment ago.
  [[nodiscard]] bool watching() const { return watchdog_.running(); }

 private:
  using QueuedSubmissions = std::list<detail::QueuedSubmission, detail::RecyclingAllocator<detail::QueuedSubmission>>;

  /// What a device has to launch next.
  struct LaunchQueue {
    QueuedSubmissions grants;
    std::list<LaunchQueue*> list_node{this};  // its place in filled_: empty while it is there, or a thread drains it
    std::shared_ptr<const std::function<void()>> notify;  // the launch thread; null: there is none
    bool notified = false;                                // drain_launches() alone drains the queue
  };

  /// Calls `change` with the communicator and the list of grants, under the lock, and hands the grants out after. If
  /// it throws, it has resolved nothing. Returns false if the communicator is closed.
  template <class Change>
  bool change(CommunicatorNumber communicator, const Change& change);
  void enqueue(QueuedSubmissions& grants) noexcept;
  void drain_queues(std::unique_lock<detail::AdaptiveMutex>& lock) noexcept;
  [[nodiscard]] static QueuedSubmissions take_for_any_thread(LaunchQueue& queue) noexcept;
  void call(detail::QueuedSubmission& submission) noexcept;
  void accept(detail::CommunicatorSequence& among, QueuedSubmissions& unaccepted, CollectiveSubmission& given,
              QueuedSubmissions& grants);
  /// Why the operation must be refused when this submission is added; nullptr if for nothing.
  [[nodiscard]] std::exception_ptr refusal_for(const detail::CommunicatorSequence& among,
                                               const detail::QueuedSubmission& submission) const;
  [[nodiscard]] std::vector<CommunicatorNumber> communicators_with(DeviceId device) const;
  void time_out(const CollectiveId& overdue);
  // The first look at an operation that may miss ranks.
  [[nodiscard]] std::chrono::milliseconds first_look(std::chrono::milliseconds timeout) const noexcept {
    return options_.explain_after.count() == 0 ? timeout : std::min(timeout, options_.explain_after / 4);
  }
  [[nodiscard]] std::optional<Time> explain_waits(Time now) noexcept;
  [[nodiscard]] std::optional<Time> find_unexplained(Time now, std::span<const DeviceId> awaited,
                                                     std::vector<std::string>& texts);
  [[nodiscard]] std::optional<Time> look(Time now);
  [[nodiscard]] detail::StalledOperation stall(CommunicatorNumber communicator) const noexcept;

  const SequencerOptions options_;
  mutable detail::AdaptiveMutex mutex_;  // before the watchdog's and the recorders'
  const std::unique_ptr<detail::OpenCommunicators> communicators_;
  std::map<DeviceId, LaunchQueue> queues_;
  std::list<LaunchQueue*> filled_;  // queues with grants that no thread is draining
  std::uint64_t opened_ = 0;
  std::size_t frozen_ = 0;  // so many times
  Time frozen_since_{};
  bool has_begun_ = false;  // an operation, since the watchdog's last look
  Watchdog watchdog_;
};

}  // namespace cox
