#pragma once

#include <coxswain/collectives/sequencer/collective_launch.hpp>
#include <coxswain/collectives/sequencer/collective_submission.hpp>
#include <coxswain/collectives/sequencer/world_order.hpp>
#include <coxswain/collectives/watch/communicator_number.hpp>
#include <coxswain/collectives/watch/flight_recorder.hpp>
#include <coxswain/collectives/watch/watchdog.hpp>
#include <coxswain/device_handle/base/device_id.hpp>
#include <coxswain/device_handle/queue/adaptive_mutex.hpp>
#include <coxswain/runtime/communication/communication_id.hpp>
#include <coxswain/runtime/handle/recycled_memory.hpp>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
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
class CommunicatorSequence;
class OpenCommunicators;
struct StalledOperation;
}  // namespace detail

struct SequencerOptions {
  /// Number of operations that a rank may be ahead of the slowest rank of its communicator (L7). One more is CallError
  /// QueueFull. submit() does not block instead, because the other ranks could be waiting for the blocked thread.
  std::size_t max_ahead = 1024;
  /// Number of operations that the flight recorder of each communicator keeps.
  std::size_t recorded_operations = 1024;
  /// Describes what the device's thread is doing, for the error that names a missing rank. Called with no lock held.
  std::function<std::string(DeviceId)> device_activity = {};
  /// A thread that has waited this long for an operation with missing ranks is reported by `explain`; 0: never. Needs
  /// the next two functions.
  std::chrono::milliseconds explain_after{0};
  /// Returns the devices that threads were observed to wait for, each in one wait of at least `at_least`. Called
  /// periodically while there are operations, with no lock held.
  std::function<std::vector<DeviceId>(Watchdog::Time now, std::chrono::milliseconds at_least)> awaited_devices = {};
  /// Reports why a thread waits. Called with no lock held.
  std::function<void(const std::string& text)> explain = {};
  /// The clock of the deadlines; std::chrono::steady_clock if empty. Called on any thread, with locks held, so it must
  /// not call the sequencer.
  std::function<Watchdog::Time()> now = {};
};

/// Orders collective operations so that the devices cannot deadlock, in whatever order threads submit them. All
/// communicators of a process must use one sequencer, because two sequencers do not know each other's order.
///
/// - The n-th submission of a rank on a communicator belongs to the n-th submission of each other rank. When all ranks
///   have submitted an operation, their requests agree, and all dependencies of their submissions are resolved, the
///   launches of all ranks are released together. No rank launches an incomplete operation, and no device waits for
///   one.
/// - Released operations have one order for the whole process. Every device gets its launches in this order, whichever
///   communicators they belong to: if two devices take part in the same two operations, both launch the same one first.
/// - Every launch is called exactly once (L2): with a grant, or with a refusal. A refusal is a CollectiveError, or
///   std::bad_alloc if there is no memory for one. The grants of one rank on one communicator are delivered in the
///   order of its submissions.
///
/// Why devices with one communication stream each cannot deadlock: Take the first operation, in the one order, that was
/// launched and has not completed. No incomplete operation precedes it on the communication streams of its devices, so
/// it has started on all of them. The operations that its ranks' compute streams wait for were released earlier, and so
/// have completed, or were refused. So it completes, and then the next one does.
///
///     submit --(all ranks submitted, all dependencies resolved)--+--> queue of device 0 --> launch, launch, ...
///                                                                `--> queue of device 1 --> launch, launch, ...
///
/// Operations of several processes (SharedCommunicator) are released by the leader of the world, which has one total
/// order of them. A process asks for one when all its own ranks have submitted it and everything that they wait for has
/// been released, or asked for before; many may be asked for at a time. Operations of its own devices need no answer of
/// others. They may stand anywhere between the released ones, so that the proof above holds for all processes together:
/// each process has the operations of several processes in the leader's order.
///
/// All launch queues of an operation are filled under one lock. Each queue is drained without the lock, by one thread
/// at a time, which is a thread that filled it. So a launch may be called by any thread, and shortly after the submit()
/// that released it has returned. Launches for a device's launch thread are an exception: see set_launch_thread(). All
/// functions but freeze() may be called by any thread, also by a launch, and block at most for a short lock.
class Sequencer {
 public:
  using Time = Watchdog::Time;

  explicit Sequencer(SequencerOptions options = {});
  Sequencer(const Sequencer&) = delete;
  Sequencer& operator=(const Sequencer&) = delete;
  /// Closes all communicators. No other call may be in progress, and no launch.
  ~Sequencer();

  /// Opens a communicator. An operation times out if it is not released `timeout` after its first rank submitted it.
  /// With devices of other processes this opens the communicator's next epoch (its number among those of the same
  /// devices). If another process has broken that epoch already, all its operations are refused. Throws CollectiveError
  /// Validation (devices of other processes, but no world; none of this process), WorldGone.
  [[nodiscard]] CommunicatorNumber open(CommunicationId devices, std::chrono::milliseconds timeout);
  /// Opens the sequence of the transfers in one direction between two ranks of a communicator. If both devices belong
  /// to this process, no other process knows it. Throws as open(), and Aborted (closed).
  [[nodiscard]] CommunicatorNumber open_transfers(CommunicatorNumber among, DeviceId from, DeviceId to,
                                                  std::chrono::milliseconds timeout);
  /// Opens the sequence of the creation of NCCL's communicators, of a communicator of several processes. It has one
  /// operation: its release means that the other processes are ready, too, and calls freeze() before any operation with
  /// a later turn is released. The launches must cause one call of thaw(). Throws as open_transfers().
  [[nodiscard]] CommunicatorNumber open_creation(CommunicatorNumber among, std::chrono::milliseconds timeout);
  /// Submits a rank's next operation. Returns its number on the communicator: a rank's n-th submission is always
  /// operation n. The operation is refused for all ranks, including those that submit it later, if the ranks' requests
  /// differ (CollectiveError Mismatch), if a rank cannot take part (RankFailed), or if this submission would make
  /// operations wait for each other in a cycle (WouldDeadlock); later operations of the communicator are not affected.
  /// Throws CallError QueueFull (see max_ahead), CollectiveError Validation (no such rank, no request) or Aborted
  /// (closed), std::system_error (no thread for the deadlines) and std::bad_alloc; then no number is used, the launch
  /// is not called, and nothing has changed.
  std::uint64_t submit(CommunicatorNumber communicator, std::size_t rank, CollectiveSubmission submission);
  /// Submits the first `count` of a rank's operations, in their order, under one lock, and removes those that it
  /// accepts from the list. Stops at the first one that cannot be accepted, and throws only if that is the first of
  /// all. Returns the number of the first operation that was accepted.
  std::uint64_t submit(CommunicatorNumber communicator, std::size_t rank, CollectiveSubmissions& submissions,
                       std::size_t count);
  /// From now on only drain_launches() calls the device's launches that are `on_launch_thread`, and those queued after
  /// them. So each device thread calls its own launches, whose memory is in its cache, instead of one thread calling
  /// all. `notify` is called when there are such launches, and when a communicator of the device breaks, so that the
  /// thread submits what is refused from then on. It must cause a call of drain_launches(), and must neither block nor
  /// throw. An empty function removes the launch thread. The former `notify` is not called any more when this returns:
  /// it waits for the end of such a call. Not to be called by a launch or by `notify`.
  void set_launch_thread(DeviceId device, std::function<void()> notify);
  /// Calls the launches for which `notify` was called. One thread at a time for each device.
  void drain_launches(DeviceId device) noexcept;
  /// Refuses the communicator's operations that are not released yet, and all later ones, with CollectiveError Aborted
  /// and this cause. Released operations are not affected. Does nothing if the communicator is closed, timed out or
  /// aborted already.
  void abort(CommunicatorNumber communicator, const std::exception_ptr& cause);
  /// The device is being shut down and submits no further operations. On every communicator with this device, the
  /// operations that it has submitted may still be released. Later ones are refused with CollectiveError Aborted, at
  /// once or when they are submitted. Idempotent.
  void leave(DeviceId device);
  /// Aborts the communicator and removes it: from now on submit() throws. Idempotent.
  void close(CommunicatorNumber communicator);
  /// Why new operations are refused: a timeout, an abort, a device that has left, or the communicator is closed;
  /// nullptr if they are not refused. This is permanent: the devices must open a new communicator.
  [[nodiscard]] std::exception_ptr broken(CommunicatorNumber communicator) const;
  /// Whether all later submissions of this rank are refused, permanently: the communicator is broken(), and the rank
  /// has submitted all operations that a device submitted before it left.
  [[nodiscard]] bool refuses_all_of(CommunicatorNumber communicator, std::size_t rank) const;

  /// Times out the operations that are overdue at `now`: the ranks that submitted them are refused with CollectiveError
  /// Timeout. The error names the missing ranks, their last operations, and what their devices are doing. If the
  /// operation was held back, it also names the operation that it waited for, through which rank, and the ranks that
  /// are missing there. All later operations of the communicator are refused too, because it is no longer known which
  /// submissions belong together. Returns the next deadline, if there is one. Called by a watchdog thread that exists
  /// only while there is a deadline.
  std::optional<Time> expire(Time now);

  /// Stops the clock of the deadlines until thaw(), which postpones all pending deadlines by the time in between. For
  /// the time in which ranks are prevented from submitting through no fault of their own. Until then only submit()
  /// releases operations, and only those of its communicator: thaw() releases what the leader has released meanwhile,
  /// and what was held back by operations that have been resolved. When this returns, the launch threads have been
  /// notified of everything that was released before. Refusals are delivered at any time. May be nested. Blocks while a
  /// thread calls `notify` of a launch thread, or other launches of its device.
  void freeze() noexcept;
  void thaw() noexcept;
  /// As the end of freeze(), for what was submitted since then. Precondition: it is frozen.
  void wait_for_notifications() noexcept;

  // Worlds. A process joins one world at most, before it opens a communicator with devices of other processes.

  /// `process`: of this process in the names of the world. `order` is called until lose_world(). `max_ahead`: how many
  /// released operations of a sequence the leader allows that this process has not completed.
  /// `devices`: of all processes, by their names in the world. If the process could not join after all, it loses the
  /// world, and may join again.
  void join_world(std::uint16_t process, std::vector<DeviceId> devices, WorldOrder& order, std::size_t max_ahead);
  /// What the communicator is to other processes; nothing if it has no ranks of other processes. Throws CollectiveError
  /// Aborted (closed).
  [[nodiscard]] std::optional<SharedSequence> shared(CommunicatorNumber communicator) const;
  // The leader's answers, in its order. One thread at a time; they may call launches.
  /// The operation is released. Returns false if it was not asked for, or is refused already: the leader is wrong.
  [[nodiscard]] bool release(const CollectiveId& operation);
  /// The operation is refused for all processes; the sequence goes on.
  void refuse(const CollectiveId& operation, const std::exception_ptr& why);
  /// The communicator ends in all processes: see broken(). Sequences that are not in `ends` have released nothing that
  /// was not released here. Also if it is not open here: then it is broken when it is opened.
  void end(const SharedCommunicator& communicator, const std::vector<SharedSequenceEnd>& ends,
           const std::exception_ptr& why);
  /// The communicators with devices of this process of the world that have been broken, with the last broken epoch.
  [[nodiscard]] std::vector<SharedCommunicator> broken_epochs(std::uint16_t process) const;
  /// For a process that joins a world after its start: communicators that have been broken are opened with their next
  /// epoch, because this process has no operations of the broken one.
  void skip_broken_epochs();
  /// What this process knows of an operation that others wait for, as text: its ranks that have not submitted it, and
  /// what their devices do; or what it waits for.
  [[nodiscard]] std::string explain_missing(const SharedSequence& sequence, std::uint64_t operation) const;
  /// The world is lost: all operations of several processes that are not released are refused, also those that were
  /// asked for, and no such communicator can be opened any more.
  void lose_world(const std::exception_ptr& why) noexcept;
  /// The rank's operations up to this one have ended. Only counts if the communicator is shared with other processes.
  void note_completed(CommunicatorNumber communicator, std::size_t rank, std::uint64_t sequence) noexcept;
  /// Reports to the leader which operations have ended, as far as it does not know. To be called periodically.
  void report_completed() noexcept;
  /// Whether the leader was asked for operations and has not answered.
  [[nodiscard]] bool awaits_leader() const noexcept;

  /// The recorder stays valid after close(). Throws CollectiveError Aborted (closed).
  [[nodiscard]] std::shared_ptr<FlightRecorder> recorder(CommunicatorNumber communicator) const;
  /// Whether the watchdog thread runs: an operation has a deadline, or had one a moment ago.
  [[nodiscard]] bool watching() const { return watchdog_.running(); }

 private:
  /// The released or refused submissions of a device whose launches have not been called yet.
  struct LaunchQueue {
    CollectiveSubmissions grants;
    // Its node for filled_; empty while the node is in filled_ or a thread drains the queue.
    std::list<LaunchQueue*> list_node{this};
    std::shared_ptr<const std::function<void()>> notify;  // notifies the launch thread; null: there is none
    bool notified = false;                                // only drain_launches() drains the queue now
    bool must_notify = false;                             // also if there are no launches: see notify_ranks()
    std::size_t passing = 0;  // threads that call its launches or `notify`, without the lock
  };

  /// Calls `change` with the communicator and an empty list of grants, under the lock. Then enqueues the grants and
  /// calls their launches without the lock. If `change` throws, it must not have resolved anything. Returns false if
  /// the communicator is closed.
  template <class Change>
  bool change(CommunicatorNumber communicator, const Change& change);
  void resolve(detail::CommunicatorSequence& among, CollectiveSubmissions& grants) noexcept;
  void enqueue(CollectiveSubmissions& grants) noexcept;
  void drain_queues(std::unique_lock<detail::AdaptiveMutex>& lock) noexcept;
  void notify_ranks(const detail::CommunicatorSequence& among) noexcept;
  [[nodiscard]] static CollectiveSubmissions take_for_any_thread(LaunchQueue& queue) noexcept;
  void call(CollectiveSubmission& submission) noexcept;
  void accept(detail::CommunicatorSequence& among, CollectiveSubmissions& submissions, CollectiveSubmissions& grants);
  /// Why the operation must be refused if this submission is added; nullptr if it need not be.
  [[nodiscard]] std::exception_ptr refusal_for(const detail::CommunicatorSequence& among,
                                               const CollectiveSubmission& submission) const;
  [[nodiscard]] std::vector<CommunicatorNumber> communicators_with(DeviceId device) const;
  [[nodiscard]] CommunicatorNumber insert(CommunicationId devices, std::chrono::milliseconds timeout,
                                          std::optional<SharedSequence> shared);
  [[nodiscard]] SharedSequence next_epoch(const CommunicationId& devices);
  void note_broken_epoch(const SharedCommunicator& communicator, const std::exception_ptr& why);
  void end_from(detail::CommunicatorSequence& among, std::uint64_t sequence, const std::exception_ptr& error) noexcept;
  void remove_if_answered(detail::CommunicatorSequence& among,
                          std::unique_ptr<detail::CommunicatorSequence>& removed) noexcept;
  void time_out(const CollectiveId& overdue);
  // Time from an operation's first submission until the watchdog first checks it.
  [[nodiscard]] std::chrono::milliseconds first_look(std::chrono::milliseconds timeout) const noexcept {
    return options_.explain_after.count() == 0 ? timeout : std::min(timeout, options_.explain_after / 4);
  }
  [[nodiscard]] std::optional<Time> explain_waits(Time now) noexcept;
  [[nodiscard]] std::optional<Time> find_unexplained(Time now, std::span<const DeviceId> awaited,
                                                     std::vector<std::string>& texts);
  [[nodiscard]] std::optional<Time> look(Time now);
  [[nodiscard]] detail::StalledOperation stall(CommunicatorNumber communicator) const noexcept;
  [[nodiscard]] CommunicatorNumber open_part(CommunicatorNumber among, CommunicationId devices, TransferRanks part,
                                             std::chrono::milliseconds timeout);
  [[nodiscard]] bool release_now(const CollectiveId& operation,
                                 std::unique_ptr<detail::CommunicatorSequence>& removed) noexcept;
  void freeze_clock() noexcept;
  [[nodiscard]] bool is_passing() const noexcept;

  const SequencerOptions options_;
  mutable detail::AdaptiveMutex mutex_;  // locked before those of the watchdog and the recorders
  const std::unique_ptr<detail::OpenCommunicators> communicators_;
  std::map<DeviceId, LaunchQueue> queues_;
  /// Of a communicator of several processes.
  struct Epochs {
    std::uint64_t broken = 0;  ///< the last epoch that was broken
    std::exception_ptr why = nullptr;
    bool is_opened = false;  ///< This process has opened it.
  };
  std::map<CommunicationId, Epochs> epochs_;
  std::uint16_t process_ = 0;  // of this process in the world; 0: there is none
  WorldOrder* leader_ = nullptr;
  std::vector<DeviceId> world_devices_;  // sorted
  std::size_t leader_max_ahead_ = 1;
  std::exception_ptr world_lost_;
  std::list<LaunchQueue*> filled_;  // queues with grants that no thread is draining
  std::uint64_t opened_ = 0;
  std::size_t frozen_ = 0;  // calls of freeze() without thaw()
  Time frozen_since_{};
  std::deque<CollectiveId> kept_releases_;  // of the leader, in its order; empty unless frozen_ != 0
  std::condition_variable_any passed_;  // is_passing() may have changed; notified only if frozen_ or removing_ is not 0
  std::size_t removing_ = 0;            // calls of set_launch_thread() that wait for the former `notify`
  bool is_ending_ = false;              // the destructor runs
  bool has_begun_ = false;              // an operation has begun since the watchdog's last check
  Watchdog watchdog_;
};

}  // namespace cox
