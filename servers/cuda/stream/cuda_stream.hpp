#pragma once

#include <coxswain/runtime/base/location.hpp>
#include <coxswain/runtime/client/graph_capture.hpp>
#include <coxswain/runtime/error/failure_reports.hpp>
#include <coxswain/runtime/error/stream_errors.hpp>
#include <coxswain/runtime/error/taken_error.hpp>
#include <coxswain/runtime/handle/recycled_memory.hpp>
#include <coxswain/runtime/memory/access_tracker.hpp>
#include <coxswain/runtime/memory/pending_positions.hpp>
#include <coxswain/runtime/profile/open_profiles.hpp>
#include <coxswain/servers/cuda/stream/cuda_graph.hpp>
#include <coxswain/servers/cuda/stream/cuda_profile.hpp>
#include <coxswain/servers/cuda/stream/poison_log.hpp>
#include <coxswain/servers/cuda/stream/stream_queue.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <source_location>
#include <utility>
#include <vector>

namespace cox::detail {

/// The device's state for one StreamId: its work, errors, captures and profiles. Device thread only, unless said
/// otherwise.
class CudaStream : public std::enable_shared_from_this<CudaStream> {
 public:
  CudaStream(const Location& location, StreamSlot slot, CudaTimeline& timeline, NativeStream& native,
             std::shared_ptr<PoisonLog> poison)
      : capture(location),
        profiles(location),
        location_(location),
        poison_log_(std::move(poison)),
        queue_(slot, timeline, native),
        errors_(std::make_shared<StreamErrors>(location)) {}
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  [[nodiscard]] StreamQueue& queue() noexcept { return queue_; }
  [[nodiscard]] StreamSlot slot() const noexcept { return queue_.slot(); }
  /// Returns a new position among the stream's operations. A wait delivers the errors of the positions before its own.
  [[nodiscard]] std::uint64_t next_sequence() noexcept { return ++sequence_; }

  /// Adds a failure that was found while work was being queued to the stream's errors, or to those of a capture. Open
  /// profiles fail with it.
  void fail(std::exception_ptr error);
  /// Adds a failure of the operation at `sequence`, found when it was issued, to the stream's errors. The profiles that
  /// contain the operation fail with it.
  void fail_after_submit(std::uint64_t sequence, std::exception_ptr error);
  /// Takes all known failures except those of open profiles, as ServerError Unhealthy; they count as delivered. Null if
  /// there are none. After a GPU fault, returns the fault.
  [[nodiscard]] std::exception_ptr take_errors(std::source_location site);
  /// As take_errors(), but the failures stay with the stream.
  [[nodiscard]] std::exception_ptr peek_errors(std::source_location site) const;
  /// Takes all remaining failures, when the device is closed.
  [[nodiscard]] std::exception_ptr take_remaining_errors(std::source_location site);
  [[nodiscard]] const std::shared_ptr<StreamErrors>& errors() const noexcept { return errors_; }
  /// No undelivered errors, no open capture or profile, and no work pending or in flight.
  [[nodiscard]] bool idle() const noexcept;

  /// No work is pending or in flight, and no capture or profile is open: no more work needs the stream.
  template <class Clock>
  [[nodiscard]] bool can_end(const Clock& clock) {
    return queue_.idle() && transfers(clock).empty() && pending_waits(clock).empty() &&
           collectives.left(clock).empty() && capture.idle() && profiles.empty();
  }

  /// Adds a transfer, which runs outside the stream but counts as its work. Call after make_room_for_transfer(), which
  /// may throw std::bad_alloc.
  void add_transfer(const StreamPosition& transfer) noexcept { transfers_.push_back(transfer); }
  void make_room_for_transfer() { transfers_.reserve(transfers_.size() + 1); }
  /// Transfers that are not known to be complete.
  template <class Clock>
  [[nodiscard]] const StreamPositions& transfers(const Clock& clock) {
    StreamPositions left;
    for (const StreamPosition& transfer : transfers_)
      if (clock.completed(transfer.stream) < transfer.position) left.push_back(transfer);
    transfers_ = std::move(left);
    return transfers_;
  }

  /// The stream's next work waits for the collectives at these positions, too.
  void add_pending_waits(const StreamPositions& collectives);
  /// Positions that the stream's next work must wait for in addition to its hazards, without those known to be
  /// complete. No wait for them has been enqueued on the driver stream yet. Work on other streams, such as a
  /// collective, can wait for them without making this stream wait.
  template <class Clock>
  [[nodiscard]] const StreamPositions& pending_waits(const Clock& clock) {
    if (pending_waits_.empty()) [[likely]]
      return pending_waits_;
    StreamPositions left;
    for (const StreamPosition& position : pending_waits_)
      if (clock.completed(position.stream) < position.position) left.push_back(position);
    pending_waits_ = std::move(left);
    return pending_waits_;
  }
  /// Call when the waits have been enqueued on the driver stream.
  void clear_pending_waits() noexcept { pending_waits_.clear(); }

  PendingPositions collectives;             ///< end positions of collectives and transfers submitted on this stream
  std::size_t persistent_windows = 0;       ///< open ones; if there are any, new memory is persistent
  std::shared_ptr<FailureReports> reports;  ///< additional receivers of failures; null: none
  GraphCapture<CudaGraph> capture;
  OpenProfiles<std::shared_ptr<CudaProfile>> profiles;
  std::vector<std::shared_ptr<CudaProfile>> running_profiles;  ///< begin has been issued, end has not

  // Any thread
  // --------------------------------------------------------------------------------------------------------------

  [[nodiscard]] const Location& location() const noexcept { return location_; }
  /// The log of the stream's device.
  [[nodiscard]] PoisonLog& poison_log() const noexcept { return *poison_log_; }
  /// Adds a failure of the operation at `sequence` to the stream's errors and to `others`, and reports it.
  void fail_at(std::uint64_t sequence, std::exception_ptr error,
               const std::shared_ptr<FailureReports>& others = nullptr);
  /// The two halves of fail_at(). record_failure_at() stores the failure where waiting callers find it and calls no
  /// callback. report_failure() writes the log and calls the stream error callback.
  void record_failure_at(std::uint64_t sequence, const std::exception_ptr& error,
                         const std::shared_ptr<FailureReports>& others) noexcept;
  void report_failure(const std::exception_ptr& error) const noexcept;
  /// Takes the failures before `sequence`, as ServerError Unhealthy for the result of a future.
  [[nodiscard]] TakenError take_errors_before(std::uint64_t sequence, std::source_location site);
  /// Reserves the failures before `sequence` for a wait at that position, which takes them later. Empty if no earlier
  /// work can fail any more.
  [[nodiscard]] std::optional<StreamErrors::Turn> begin_turn(std::uint64_t sequence) const {
    if (poison_log_->is_quiet()) return std::nullopt;
    return std::optional<StreamErrors::Turn>(std::in_place, errors_, sequence);
  }
  /// See StreamErrors::take_later.
  [[nodiscard]] TakenError take_later_errors(const TakenError& earlier, std::uint64_t sequence,
                                             std::source_location site) {
    return StreamErrors::take_later(earlier, errors_, sequence, location_, site);
  }
  /// See StreamErrors::remove_between.
  [[nodiscard]] std::exception_ptr remove_errors_between(std::uint64_t first, std::uint64_t last) {
    return errors_->remove_between(first, last);
  }

 private:
  const Location location_;
  const std::shared_ptr<PoisonLog> poison_log_;
  StreamQueue queue_;
  const std::shared_ptr<StreamErrors> errors_;  // shared with the futures that have taken failures
  std::uint64_t sequence_ = 0;
  StreamPositions transfers_;
  StreamPositions pending_waits_;
};

}  // namespace cox::detail
