#pragma once

#include <coxswain/collectives/sequencer/collective_launch.hpp>
#include <coxswain/collectives/sequencer/collective_submission.hpp>
#include <coxswain/collectives/watch/communicator_number.hpp>
#include <coxswain/collectives/watch/flight_recorder.hpp>
#include <coxswain/collectives/watch/operation_summary.hpp>
#include <coxswain/device_handle/base/device_id.hpp>
#include <coxswain/runtime/communication/communication_id.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <string>
#include <vector>

namespace cox::detail {

/// An operation that waits for ranks or for other operations, or that is refused but not yet submitted by all ranks.
struct WaitingOperation {
  CollectiveSubmissions arrived;  ///< Submissions that are not resolved, in the order of arrival.
  std::size_t ranks = 0;          ///< Number of ranks that have submitted it.
  std::chrono::steady_clock::time_point deadline{};
  LaunchGrant grant{};        ///< The grant for its ranks. If it has a refusal, the operation is refused.
  bool is_explained = false;  ///< The reason for the wait has been reported (SequencerOptions::explain).
};

/// The operations of one communicator. They are resolved in order: each is released or refused. Has no thread and no
/// lock; the owner's lock guards it. Grants are added to a list for the caller; no launch is called here.
///
///     first_                       first_ + resolved_   end()
///     | refused, ranks are missing | not resolved       | not submitted by any rank
class CommunicatorSequence {
 public:
  using Time = std::chrono::steady_clock::time_point;

  CommunicatorSequence(CommunicatorNumber number, CommunicationId devices, std::chrono::milliseconds timeout,
                       std::size_t max_ahead, std::shared_ptr<FlightRecorder> recorder);

  /// Writes the operation's number and the device into the submission. Throws CollectiveError Validation (no such rank)
  /// and CallError QueueFull (the rank is too far ahead of the slowest rank).
  void number(CollectiveSubmission& submission) const;
  /// Whether the rank's next submission would be the first one of a new operation.
  [[nodiscard]] bool begins_operation(std::size_t rank) const noexcept { return !ended() && next_[rank] == end(); }
  /// Why the operation must be refused if this numbered submission is added: the submission's failure, or a mismatch
  /// with the other ranks. nullptr if there is neither.
  [[nodiscard]] std::exception_ptr refusal_for(const CollectiveSubmission& submission) const;
  /// Takes the first submission, which is numbered, out of its list. If `refusal` is set and the operation has none
  /// yet, the operation is refused. Resolves the submission at once if its operation is already refused, or all new
  /// operations are. If it throws (std::bad_alloc), nothing has changed.
  void add(CollectiveSubmissions& submissions, const std::exception_ptr& refusal, Time now,
           CollectiveSubmissions& grants);

  /// The oldest operation that is not resolved; nullptr if there is none.
  [[nodiscard]] const WaitingOperation* oldest() const noexcept { return waiting(first_ + resolved_); }
  [[nodiscard]] std::uint64_t oldest_sequence() const noexcept { return first_ + resolved_; }
  /// nullptr if the operation is resolved, or no rank has submitted it.
  [[nodiscard]] const WaitingOperation* waiting(std::uint64_t sequence) const noexcept;
  [[nodiscard]] bool complete(const WaitingOperation& operation) const noexcept {
    return operation.ranks == next_.size();
  }
  /// Whether other operations need not wait for this one any more: it was released, or it is refused.
  [[nodiscard]] bool is_resolved(std::uint64_t sequence) const noexcept {
    return sequence < oldest_sequence() || ended();
  }
  /// Adds the grants of the oldest operation to `grants`: released as number `order` of all operations, or refused.
  void resolve_oldest(std::uint64_t order, CollectiveSubmissions& grants) noexcept;
  /// Refuses all unresolved operations from this number on, and all later submissions. The first error is kept.
  void refuse_from(std::uint64_t sequence, const std::exception_ptr& error) noexcept;
  /// Moves the deadlines of all unresolved operations.
  void postpone(Time::duration by) noexcept {
    for (WaitingOperation& operation : waiting_) operation.deadline += by;
  }
  /// Records that the reason why the oldest unresolved operation waits has been reported.
  void note_explained() noexcept {
    if (resolved_ < waiting_.size()) waiting_[resolved_].is_explained = true;
  }
  /// When the first rank submitted the oldest unresolved operation. Precondition: there is one.
  [[nodiscard]] Time oldest_since() const noexcept { return oldest()->deadline - timeout_; }
  /// Records that some operation waits for this one.
  void note_awaited(std::uint64_t sequence) noexcept { awaited_ = std::max(awaited_, sequence); }
  /// The highest number passed to note_awaited(): no operation waits, or has waited, for a later one.
  [[nodiscard]] std::uint64_t awaited() const noexcept { return awaited_; }
  /// Why all later submissions are refused; nullptr if they are not.
  [[nodiscard]] const std::exception_ptr& error() const noexcept { return error_; }

  [[nodiscard]] CommunicatorNumber number() const noexcept { return number_; }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] const CommunicationId& devices() const noexcept { return devices_; }
  [[nodiscard]] std::chrono::milliseconds timeout() const noexcept { return timeout_; }
  [[nodiscard]] const std::shared_ptr<FlightRecorder>& recorder() const noexcept { return recorder_; }
  /// Whether all later submissions of the rank are refused. False while the rank still has to submit an operation that
  /// precedes error(): the other ranks wait for it there.
  [[nodiscard]] bool refuses_all_of(std::size_t rank) const noexcept {
    const WaitingOperation* const its_next = waiting(next_[rank]);
    return error_ && (its_next == nullptr || its_next->grant.refusal);
  }
  /// The number of the rank's next operation.
  [[nodiscard]] std::uint64_t next(std::size_t rank) const noexcept { return next_[rank]; }
  /// "its last there was operation 3, all_reduce ...".
  [[nodiscard]] std::string last_of(std::size_t rank) const;
  /// "operation 3 of communicator 1 {...}, all_reduce ...", with the request of the rank that submitted it first.
  [[nodiscard]] std::string describe(std::uint64_t sequence) const;

 private:
  [[nodiscard]] std::uint64_t end() const noexcept { return first_ + waiting_.size(); }
  [[nodiscard]] bool ended() const noexcept { return error_ && resolved_ == waiting_.size(); }
  void begin(std::uint64_t sequence, Time now);
  void resolve(WaitingOperation& operation, CollectiveSubmissions& grants) noexcept;
  void drop() noexcept;

  const CommunicatorNumber number_;
  const CommunicationId devices_;
  const std::string name_;
  const std::chrono::milliseconds timeout_;
  const std::size_t max_ahead_;
  const std::shared_ptr<FlightRecorder> recorder_;
  std::deque<WaitingOperation> waiting_;
  std::uint64_t first_ = 1;             // the sequence number of waiting_.front()
  std::size_t resolved_ = 0;            // number of resolved operations at the front of waiting_
  std::vector<std::uint64_t> next_;     // by rank: the number of its next operation
  std::vector<OperationSummary> last_;  // by rank: its last submission
  std::uint64_t awaited_ = 0;
  std::exception_ptr error_;
};

}  // namespace cox::detail
