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

/// A StreamId as its device knows it: its work, its errors, captures and profiles. Device thread only, unless said
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
  /// A place among the stream's operations: errors are told with those before them.
  [[nodiscard]] std::uint64_t next_sequence() noexcept { return ++sequence_; }

  /// A failure found while work was being queued joins the stream's errors, or those of a capture, and voids the
  /// profiles that are open.
  void fail(std::exception_ptr error);
  /// A failure of the operation at `sequence`, found when it was issued, joins the stream's errors and voids the
  /// profiles that it lies within.
  void fail_after_submit(std::uint64_t sequence, std::exception_ptr error);
  /// All known failures as ServerError Unhealthy, which count as delivered, but for those of open profiles; null if
  /// there are none. After a fault of the GPU: that.
  [[nodiscard]] std::exception_ptr take_errors(std::source_location site);
  /// As take_errors, but they stay.
  [[nodiscard]] std::exception_ptr peek_errors(std::source_location site) const;
  /// All failures that are left, at the end of the device.
  [[nodiscard]] std::exception_ptr take_remaining_errors(std::source_location site);
  [[nodiscard]] const std::shared_ptr<StreamErrors>& errors() const noexcept { return errors_; }
  /// Nothing to tell, nothing begun, nothing under way.
  [[nodiscard]] bool idle() const noexcept;

  /// A transfer apart from the stream that counts as its work, too. After make_room_for_transfer(), which may throw
  /// std::bad_alloc.
  void add_transfer(const StreamPosition& transfer) noexcept { transfers_.push_back(transfer); }
  void make_room_for_transfer() { transfers_.reserve(transfers_.size() + 1); }
  /// Those that are not known to be complete.
  template <class Clock>
  [[nodiscard]] const StreamPositions& transfers(const Clock& clock) {
    StreamPositions left;
    for (const StreamPosition& transfer : transfers_)
      if (clock.completed(transfer.stream) < transfer.position) left.push_back(transfer);
    transfers_ = std::move(left);
    return transfers_;
  }

  /// The collectives at these positions come before the stream's next work, too.
  void add_pending_waits(const StreamPositions& collectives);
  /// What the stream's next work has to wait for besides, as far as it is not known to be complete. The driver has not
  /// been told: who waits for it himself spares the stream that.
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
  /// The driver has been told.
  void clear_pending_waits() noexcept { pending_waits_.clear(); }

  PendingPositions collectives;             ///< ends of those that were asked for on this stream, transfers too
  std::size_t persistent_windows = 0;       ///< that are open: new memory is persistent
  std::shared_ptr<FailureReports> reports;  ///< where failures go besides; null: nowhere else
  GraphCapture<CudaGraph> capture;
  OpenProfiles<std::shared_ptr<CudaProfile>> profiles;
  std::vector<std::shared_ptr<CudaProfile>> running_profiles;  ///< whose begin has been issued, and whose end has not

  // Any thread
  // --------------------------------------------------------------------------------------------------------------

  [[nodiscard]] const Location& location() const noexcept { return location_; }
  /// Its device's.
  [[nodiscard]] PoisonLog& poison_log() const noexcept { return *poison_log_; }
  /// A failure of the operation at `sequence` joins the stream's errors, and goes to `others`.
  void fail_at(std::uint64_t sequence, std::exception_ptr error,
               const std::shared_ptr<FailureReports>& others = nullptr);
  /// The two halves of that: where whoever waits finds it, which calls nothing; and the log, and who wants to be told.
  void note_failure_at(std::uint64_t sequence, const std::exception_ptr& error,
                       const std::shared_ptr<FailureReports>& others) noexcept;
  void report_failure(const std::exception_ptr& error) const noexcept;
  /// The failures of what came before, as ServerError Unhealthy for the result of a future.
  [[nodiscard]] TakenError take_errors_before(std::uint64_t sequence, std::source_location site);
  /// A wait at that place takes the failures before it later; nothing where none of that can fail any more.
  [[nodiscard]] std::optional<StreamErrors::Turn> begin_turn(std::uint64_t sequence) const {
    if (poison_log_->is_quiet()) return std::nullopt;
    return std::optional<StreamErrors::Turn>(std::in_place, errors_, sequence);
  }
  /// As StreamErrors::take_later.
  [[nodiscard]] TakenError take_later_errors(const TakenError& earlier, std::uint64_t sequence,
                                             std::source_location site) {
    return StreamErrors::take_later(earlier, errors_, sequence, location_, site);
  }
  /// As StreamErrors::remove_between.
  [[nodiscard]] std::exception_ptr remove_errors_between(std::uint64_t first, std::uint64_t last) {
    return errors_->remove_between(first, last);
  }

 private:
  const Location location_;
  const std::shared_ptr<PoisonLog> poison_log_;
  StreamQueue queue_;
  const std::shared_ptr<StreamErrors> errors_;  // with the futures that have taken some
  std::uint64_t sequence_ = 0;
  StreamPositions transfers_;
  StreamPositions pending_waits_;
};

}  // namespace cox::detail
