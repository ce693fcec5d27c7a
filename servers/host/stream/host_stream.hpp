#pragma once

#include <coxswain/collectives/sequencer/collective_dependency_tracker.hpp>
#include <coxswain/device_handle/base/unique_function.hpp>
#include <coxswain/runtime/base/location.hpp>
#include <coxswain/runtime/client/graph_capture.hpp>
#include <coxswain/runtime/error/failure_reports.hpp>
#include <coxswain/runtime/error/stream_errors.hpp>
#include <coxswain/runtime/error/taken_error.hpp>
#include <coxswain/runtime/memory/pending_positions.hpp>
#include <coxswain/runtime/memory/stream_position.hpp>
#include <coxswain/runtime/profile/open_profiles.hpp>
#include <coxswain/runtime/profile/profile_duration.hpp>
#include <coxswain/runtime/trace/trace.hpp>
#include <coxswain/servers/host/stream/host_graph.hpp>
#include <coxswain/servers/host/stream/host_threads.hpp>
#include <coxswain/servers/host/stream/running_profiles.hpp>
#include <coxswain/servers/host/stream/timeline.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <source_location>
#include <utility>

namespace cox::detail {

/// One stream of a host device: pieces of work that run one after the other on the device's threads. A piece that must
/// wait for another stream does not block a thread: this stream registers with the timeline of the other one, and is
/// scheduled again when the event is reached. A piece waits only for work that was queued before it on the device, so
/// pieces cannot wait for each other in a cycle.
class HostStream final : public std::enable_shared_from_this<HostStream>,
                         private HostThreads::Worker,
                         private Timeline::Waiter {
 public:
  /// `timeline`: of the slot, with no work in flight. The stream continues its count.
  HostStream(const Location& location, HostThreads& threads, StreamSlot slot, std::shared_ptr<Timeline> timeline)
      : capture(location),
        profiles(location),
        location_(location),
        slot_(slot),
        threads_(threads),
        timeline_(std::move(timeline)),
        errors_(std::make_shared<StreamErrors>(location)),
        submitted_(timeline_->count()),
        started_(submitted_) {}

  // Device thread
  // -------------------------------------------------------------------------------------------------------

  [[nodiscard]] StreamSlot slot() const noexcept { return slot_; }
  /// The position of the piece that the next submit queues.
  [[nodiscard]] StreamPosition next_position() const noexcept { return {slot_, submitted_ + 1}; }
  /// The event of the piece that the next submit queues.
  [[nodiscard]] HostEvent next_event() const { return {timeline_, submitted_ + 1}; }
  /// The position of the last queued piece.
  [[nodiscard]] StreamPosition last_position() const noexcept { return {slot_, submitted_}; }
  /// Queues `work`, to run after all earlier pieces and after `waits`. Its captures are destroyed before its event is
  /// reached. What it throws joins the errors of the stream. Does not block. Throws std::bad_alloc; then nothing is
  /// queued.
  /// `name`: for traces, of static storage.
  void submit(HostEvents waits, UniqueFunction<void()> work, const char* name = "work") {
    queue(make_piece(std::move(waits), std::move(work), name));
  }
  /// Records a failure that happened while work was being queued. During a capture the capture fails. Otherwise the
  /// failure joins the errors of the stream, and invalidates the open profiles.
  void fail(std::exception_ptr error);
  /// For fail_at(): the position of failures that happen between the last queued piece and the next one.
  [[nodiscard]] std::uint64_t failure_position() const noexcept { return 2 * submitted_ + 1; }
  /// Takes all known failures as ServerError Unhealthy, except those of open profiles; they count as delivered. Null if
  /// there are none.
  [[nodiscard]] std::exception_ptr take_errors(std::source_location site) {
    return errors_->take_known(location_, site);
  }
  /// Like take_errors, but does not remove the failures.
  [[nodiscard]] std::exception_ptr peek_errors(std::source_location site) const {
    return errors_->peek(location_, site);
  }
  /// Takes all remaining failures, at the end of the device.
  [[nodiscard]] std::exception_ptr take_remaining_errors(std::source_location site) {
    return errors_->take_remaining(location_, site);
  }
  [[nodiscard]] const std::shared_ptr<StreamErrors>& errors() const noexcept { return errors_; }
  /// No work or collective is in flight, no error is undelivered, no profile, capture or window is open, and failures
  /// are reported to no other stream.
  [[nodiscard]] bool idle() const {
    return timeline_->reached(submitted_) && collectives_in_flight.load(std::memory_order_acquire) == 0 &&
           errors_->empty() && errors_.use_count() == 1 && persistent_windows == 0 && capture.idle() &&
           profiles.empty() && reports == nullptr;
  }
  /// Blocks until everything submitted has run.
  void drain() { timeline_->wait(submitted_); }

  PendingPositions collectives;             ///< ends of collectives and transfers of this stream
  std::size_t persistent_windows = 0;       ///< number of open ones; while there are any, new memory is persistent
  CollectiveDependencyTracker awaited;      ///< collectives that the stream waits for
  std::shared_ptr<FailureReports> reports;  ///< reports failures to other streams, too; null: to none
  GraphCapture<HostGraph> capture;
  OpenProfiles<std::shared_ptr<HostProfile>> profiles;

  // Called by the piece of work with this event, while it runs
  // ----------------------------------------------------------------------

  /// Takes the failures of work that was queued before that piece, as ServerError Unhealthy for the result of a future.
  [[nodiscard]] TakenError take_errors_before(const HostEvent& event, std::source_location site) {
    return StreamErrors::take_for_future(errors_, 2 * event.value, location_, site);
  }
  /// The piece's position among the errors of its stream.
  [[nodiscard]] static std::uint64_t error_position(const HostEvent& event) noexcept { return 2 * event.value; }
  /// The failure of that piece itself, for the result of a future.
  [[nodiscard]] TakenError failed(const HostEvent& event, std::exception_ptr error) const noexcept {
    return StreamErrors::of_operation(errors_, 2 * event.value, std::move(error));
  }

  void begin_profile(std::shared_ptr<HostProfile> profile) { running_profiles_.begin(std::move(profile)); }
  /// `event`: of the piece that ends the profile.
  [[nodiscard]] ProfileTicks end_profile(const std::shared_ptr<HostProfile>& profile, const HostEvent& event,
                                         ProfileFailures failures) {
    const std::uint64_t begin = 2 * profile->begin_piece;
    if (failures == ProfileFailures::OfProfile) {
      if (TakenError first = StreamErrors::take_for_profile(errors_, begin, 2 * event.value)) {
        profile->failure = std::move(first.error);
        profile->receipt = std::move(first.receipt);
      }
    }
    errors_->end_profile(begin);
    return running_profiles_.end(profile);
  }

  // Any thread
  // --------------------------------------------------------------------------------------------------------------

  [[nodiscard]] const Location& location() const noexcept { return location_; }
  /// Adds a failure to the errors of the stream, and to `others` if not null. `position`: what failure_position() was
  /// when the failed operation was submitted.
  void fail_at(std::uint64_t position, std::exception_ptr error, const std::shared_ptr<FailureReports>& others) {
    record(position, std::move(error), others);
  }
  /// Collectives that were submitted on this stream and have not ended. Only the device thread increments it.
  std::atomic<std::size_t> collectives_in_flight{0};

  /// Work that is ready to be queued.
  struct Piece {
    HostEvents waits;
    UniqueFunction<void()> work;
    const char* name;
    trace::Origin origin;
    std::unique_ptr<Piece> next = nullptr;
  };
  /// Throws std::bad_alloc.
  [[nodiscard]] static std::unique_ptr<Piece> make_piece(HostEvents waits, UniqueFunction<void()> work,
                                                         const char* name) {
    return std::make_unique<Piece>(Piece{std::move(waits), std::move(work), name, trace::origin()});
  }
  /// Like submit(), but does not allocate. One thread at a time: the device thread, or, on a communication stream, the
  /// thread that calls the launch of a collective.
  void queue(std::unique_ptr<Piece> piece) noexcept;

 private:
  static constexpr int most_at_once = 64;  // pieces that run before other streams get the thread

  // Positions of errors: a failure of piece n is at 2n, a failure between queuing pieces n and n + 1 is at 2n + 1.
  void record(std::uint64_t position, std::exception_ptr error, const std::shared_ptr<FailureReports>& others);

  // On a thread of the device, one thread at a time. Only the work itself allocates: there is no caller to which a
  // failed allocation could be reported.
  void execute() noexcept override;
  [[nodiscard]] Piece* front() noexcept;
  [[nodiscard]] std::unique_ptr<Piece> pop() noexcept;
  [[nodiscard]] bool waits_for_others(Piece& piece) noexcept;
  void run(Piece& piece) noexcept;
  // Called on a thread of the stream that this one waits for.
  void reached() noexcept override { threads_.schedule(*this); }

  Location location_;
  StreamSlot slot_;
  HostThreads& threads_;
  std::shared_ptr<Timeline> timeline_;
  const std::shared_ptr<StreamErrors> errors_;  // shared with futures that have taken failures
  std::uint64_t submitted_;                     // device thread only
  std::uint64_t started_;                       // execute() only
  RunningProfiles running_profiles_;            // execute() only
  std::mutex mutex_;
  std::unique_ptr<Piece> first_;  // guarded by mutex_, like all members below
  Piece* last_ = nullptr;
  std::shared_ptr<HostStream> self_;  // set while there are pieces: scheduled, running, or waiting for a stream
};

}  // namespace cox::detail
