#pragma once

#include <coxswain/runtime/communication/collective_request.hpp>
#include <coxswain/runtime/communication/communication_id.hpp>
#include <coxswain/collectives/flight_recorder.hpp>
#include <coxswain/collectives/launch.hpp>
#include <coxswain/collectives/watchdog.hpp>
#include <coxswain/device_handle/device_id.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace cox {

namespace detail {
class CommunicatorSequence;
struct LaunchAnswer;
}  // namespace detail

/// Names a communicator that was opened. Never used again for another.
enum class CommunicatorNumber : std::uint64_t {};

struct SequencerOptions {
  /// Operations that a rank may be ahead of the slowest rank of its communicator (L7). One more is CallError QueueFull:
  /// a thread that waited there could be the one that the others wait for.
  std::size_t max_ahead = 1024;
  /// What the flight recorder of each communicator keeps.
  std::size_t recorded_operations = 1024;
  /// Says what the device's thread is doing, for the error that names a missing rank. Called with no lock held.
  std::function<std::string(DeviceId)> device_activity = {};
  /// The clock of the deadlines; std::chrono::steady_clock if empty. Any thread, under locks: must not call back.
  std::function<Watchdog::Time()> now = {};
};

/// Launches operations on several devices so that the devices cannot deadlock, whatever the order in which threads ask.
/// There must be one for all communicators of a process: two know nothing of each other.
///
/// - The n-th request of a rank on a communicator belongs to the n-th of each other rank. When all have asked and
///   agree, all their launches are released: nobody launches, and no device waits, for a set that is incomplete.
/// - Released operations are in one order for the whole process. Every device gets its launches in that
///   order, whichever communicators they are of: of two operations, the same is first on every device that takes part
///   in both.
/// - Every launch is called exactly once (L2): launched, or refused with a CollectiveError. The answers to one rank
///   on one communicator come in the order of its requests.
///
///     submit --(all ranks are there)--> line of device 0 --> launch, launch, ...    filled under the lock, for all
///                                       line of device 1 --> launch, launch, ...    devices at once: one order
///
/// A line is emptied, with no lock held, by the thread that filled it, or by one that is emptying it already: so a
/// launch may be called by any thread, and shortly after the submit() that released it has returned. All functions may
/// be called by any thread, also by a launch, and block for a short lock at most.
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
  /// Returns the operation's number on its communicator, counted from 1. Throws CallError QueueFull (see max_ahead),
  /// and CollectiveError Validation (no such rank) or Aborted (closed); then the launch is not called, and nothing has
  /// changed.
  std::uint64_t submit(CommunicatorNumber communicator, std::size_t rank, const CollectiveRequest& request,
                       Launch launch);
  /// Refuses what waits for ranks on the communicator, and what comes until reopen(), with CollectiveError Aborted and
  /// this cause. What was released stays so. Nothing happens if it is closed, timed out or aborted already.
  void abort(CommunicatorNumber communicator, const std::exception_ptr& cause);
  /// abort() for every communicator that the device is in.
  void abort(DeviceId device, const std::exception_ptr& cause);
  /// After a timeout or an abort: all ranks go on with the same operation number, above all that were given. The caller
  /// sees to it that no rank still submits what was meant before it. Nothing happens if nothing was wrong. Throws
  /// CollectiveError Aborted (closed).
  void reopen(CommunicatorNumber communicator);
  /// As abort(), for good. Idempotent.
  void close(CommunicatorNumber communicator);

  /// Times out what is overdue at `now`: all who did arrive are refused with CollectiveError Timeout, which names the
  /// missing ranks, each one's last operation, and what its device is doing; so is everything that was submitted after
  /// it or comes until reopen(), as nobody knows any more what belongs together. Returns the next deadline, if there is
  /// one. Called by a watchdog thread that exists only while there is a deadline.
  std::optional<Time> expire(Time now);

  /// Stays good after close(). Throws CollectiveError Aborted (closed).
  [[nodiscard]] std::shared_ptr<FlightRecorder> recorder(CommunicatorNumber communicator) const;
  /// Whether something waits for a deadline, or did a moment ago.
  [[nodiscard]] bool watching() const { return watchdog_.running(); }

 private:
  /// What a device has to launch next.
  struct Turn {
    CommunicatorNumber communicator;
    std::size_t rank;
    std::shared_ptr<FlightRecorder> recorder;
    LaunchTurn turn;
    Launch launch;
  };
  struct Line {
    std::vector<Turn> turns;
    bool attended = false;  // a thread is emptying it
  };
  struct Overdue;

  /// Calls `change` with the communicator and the list of answers, under the lock, and hands the answers out after.
  /// Returns false if it is closed.
  template <class Change>
  bool change(CommunicatorNumber communicator, const Change& change);
  [[nodiscard]] std::vector<Line*> line_up(CommunicatorNumber number, const detail::CommunicatorSequence& communicator,
                                           std::vector<detail::LaunchAnswer>& answers);
  void attend(Line& line);
  void call(Turn& turn) noexcept;
  [[nodiscard]] std::optional<Overdue> first_overdue(Time now) const;
  void time_out(const Overdue& overdue);
  [[nodiscard]] std::string activity(DeviceId device) const;
  [[nodiscard]] std::optional<Time> next_deadline() const;

  const SequencerOptions options_;
  mutable std::mutex mutex_;  // before the watchdog's and the recorders'
  std::map<CommunicatorNumber, std::unique_ptr<detail::CommunicatorSequence>> communicators_;
  std::map<DeviceId, Line> lines_;
  std::uint64_t opened_ = 0;
  std::uint64_t order_ = 0;  // operations released
  Watchdog watchdog_;
};

}  // namespace cox
