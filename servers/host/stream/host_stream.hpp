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
#include <coxswain/runtime/profile/profile_failures.hpp>
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
/// wait for another stream is passed over to that stream's timeline and comes back when it is its turn: no thread
/// blocks. Pieces wait only for what was queued before them on the device, so that they never wait for each other in a
/// ring.
class HostStream final : public std::enable_shared_from_this<HostStream>,
                         private HostThreads::Worker,
                         private Timeline::Waiter {
 public:
  /// `timeline`: of the slot, with nothing under way; the stream counts on from there.
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
  /// Where the piece will be that submit queues next.
  [[nodiscard]] StreamPosition next_position() const noexcept { return {slot_, submitted_ + 1}; }
  /// Its event.
  [[nodiscard]] HostEvent next_event() const { return {timeline_, submitted_ + 1}; }
  /// Where the last piece is that was queued.
  [[nodiscard]] StreamPosition last_position() const noexcept { return {slot_, submitted_}; }
  /// Queues `work`, to run after all pieces before it and after `waits`. Its captures are gone before its event is
  /// reached. What it throws joins the stream's errors. Does not block. Throws std::bad_alloc; then nothing is queued.
  /// `name`: for traces, of static storage.
  void submit(HostEvents waits, UniqueFunction<void()> work, const char* name = "work") {
    queue(make_piece(std::move(waits), std::move(work), name));
  }
  /// A failure found while work was being queued joins the stream's errors, or those of a capture, and voids the
  /// profiles that are open.
  void fail(std::exception_ptr error);
  /// For fail_at(): what fails between the pieces that are queued now and the next one.
  [[nodiscard]] std::uint64_t failure_position() const noexcept { return 2 * submitted_ + 1; }
  /// All known failures as ServerError Unhealthy, which count as delivered, but for those of open profiles; null if
  /// there are none.
  [[nodiscard]] std::exception_ptr take_errors(std::source_location site) {
    return errors_->take_known(location_, site);
  }
  /// As take_errors, but they stay.
  [[nodiscard]] std::exception_ptr peek_errors(std::source_location site) const {
    return errors_->peek(location_, site);
  }
  /// All failures that are left, at the end of the device.
  [[nodiscard]] std::exception_ptr take_remaining_errors(std::source_location site) {
    return errors_->take_remaining(location_, site);
  }
  [[nodiscard]] const std::shared_ptr<StreamErrors>& errors() const noexcept { return errors_; }
  /// Nothing queued, nothing to tell, nothing begun.
  [[nodiscard]] bool idle() const {
    return timeline_->reached(submitted_) && collectives_in_flight.load(std::memory_order_acquire) == 0 &&
           errors_->empty() && errors_.use_count() == 1 && persistent_windows == 0 && capture.idle() &&
           profiles.empty() && reports == nullptr;
  }
  /// Blocks until everything submitted has run.
  void drain() { timeline_->wait(submitted_); }

  PendingPositions collectives;             ///< ends of those that were asked for on this stream, transfers too
  std::size_t persistent_windows = 0;       ///< that are open: new memory is persistent
  CollectiveDependencyTracker awaited;      ///< what the stream has come to wait for
  std::shared_ptr<FailureReports> reports;  ///< where failures go besides; null: nowhere else
  GraphCapture<HostGraph> capture;
  OpenProfiles<std::shared_ptr<HostProfile>> profiles;

  // The piece of work with this event, while it runs
  // ----------------------------------------------------------------------

  /// The failures of what was queued before that piece, as ServerError Unhealthy for the result of a future.
  [[nodiscard]] TakenError take_errors_before(const HostEvent& event, std::source_location site) {
    return StreamErrors::take_for_future(errors_, 2 * event.value, location_, site);
  }
  /// The piece's place among the errors of its stream.
  [[nodiscard]] static std::uint64_t error_position(const HostEvent& event) noexcept { return 2 * event.value; }
  /// What that piece itself failed with, for the result of a future.
  [[nodiscard]] TakenError failed(const HostEvent& event, std::exception_ptr error) const noexcept {
    return StreamErrors::of_operation(errors_, 2 * event.value, std::move(error));
  }

  void begin_profile(std::shared_ptr<HostProfile> profile) { running_profiles_.begin(std::move(profile)); }
  /// `event`: of this piece.
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
  /// A failure of what was asked for when failure_position() was `position` joins the stream's errors, and goes to
  /// `others`.
  void fail_at(std::uint64_t position, std::exception_ptr error, const std::shared_ptr<FailureReports>& others) {
    record(position, std::move(error), others);
  }
  /// Collectives that were asked for on this stream and have not ended. Only the device thread adds.
  std::atomic<std::size_t> collectives_in_flight{0};

  /// Work that has been made ready to be queued.
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
  /// As submit(), without an allocation. One thread at a time: that of the device, or of whoever else the stream is
  /// left to.
  void queue(std::unique_ptr<Piece> piece) noexcept;

 private:
  static constexpr int most_at_once = 64;  // pieces, before it is the other streams' turn

  // Positions of errors: piece n fails at 2n, what is found between queuing n and n + 1 is at 2n + 1.
  void record(std::uint64_t position, std::exception_ptr error, const std::shared_ptr<FailureReports>& others);

  // On one of the threads, one at a time. Nothing there allocates but the work itself: nobody could be told.
  void execute() noexcept override;
  [[nodiscard]] Piece* front() noexcept;
  [[nodiscard]] std::unique_ptr<Piece> pop() noexcept;
  [[nodiscard]] bool waits_for_others(Piece& piece) noexcept;
  void run(Piece& piece) noexcept;
  // On a thread of the stream that this one waits for.
  void reached() noexcept override { threads_.schedule(*this); }

  Location location_;
  StreamSlot slot_;
  HostThreads& threads_;
  std::shared_ptr<Timeline> timeline_;
  const std::shared_ptr<StreamErrors> errors_;  // with the futures that have taken some
  std::uint64_t submitted_;                     // device thread only
  std::uint64_t started_;                       // execute() only
  RunningProfiles running_profiles_;            // execute() only
  std::mutex mutex_;
  std::unique_ptr<Piece> first_;  // guarded by mutex_, as all below
  Piece* last_ = nullptr;
  std::shared_ptr<HostStream> self_;  // while there are pieces: scheduled, at work, or waiting for another stream
};

}  // namespace cox::detail
