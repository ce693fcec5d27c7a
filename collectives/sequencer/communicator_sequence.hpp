#pragma once

#include <coxswain/collectives/sequencer/collective_launch.hpp>
#include <coxswain/collectives/sequencer/collective_submission.hpp>
#include <coxswain/collectives/sequencer/world_order.hpp>
#include <coxswain/collectives/watch/communicator_number.hpp>
#include <coxswain/collectives/watch/flight_recorder.hpp>
#include <coxswain/collectives/watch/operation_summary.hpp>
#include <coxswain/device_handle/base/device_id.hpp>
#include <coxswain/runtime/communication/communication_id.hpp>
#include <coxswain/runtime/communication/world_process.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace cox::detail {

/// An operation that waits for ranks or for other operations, or that is refused but not yet submitted by all ranks.
struct WaitingOperation {
  CollectiveSubmissions arrived;  ///< Submissions that are not resolved, in the order of arrival.
  std::size_t ranks = 0;          ///< Number of ranks that have submitted it.
  std::chrono::steady_clock::time_point deadline{};
  LaunchGrant grant{};        ///< The grant for its ranks. If it has a refusal, the operation is refused.
  bool is_released = false;   ///< The leader of the world has released it. Only if the sequence is shared.
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

  /// `process`: of this process in the names of the world. `shared`: what it is to the other processes; nothing if all
  /// its devices belong to this process.
  CommunicatorSequence(CommunicatorNumber number, CommunicationId devices, std::chrono::milliseconds timeout,
                       std::size_t max_ahead, std::shared_ptr<FlightRecorder> recorder, std::uint16_t process = 0,
                       std::optional<SharedSequence> shared = std::nullopt);

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
  /// Whether all ranks of this process have submitted it.
  [[nodiscard]] bool complete(const WaitingOperation& operation) const noexcept {
    return operation.ranks == own_ranks_;
  }
  /// Whether other operations need not wait for this one any more: it was released, or it is refused.
  [[nodiscard]] bool is_resolved(std::uint64_t sequence) const noexcept {
    return sequence < oldest_sequence() || ended();
  }
  /// Adds the grants of the oldest operation to `grants`: released as number `order` of all operations, or refused.
  void resolve_oldest(std::uint64_t order, CollectiveSubmissions& grants) noexcept;
  /// Refuses all unresolved operations from this number on, and all later submissions. An operation keeps its first
  /// error.
  void refuse_from(std::uint64_t sequence, const std::exception_ptr& error) noexcept;
  // Of a sequence that is shared with other processes:

  /// nullptr if it is not shared.
  [[nodiscard]] const SharedSequence* shared() const noexcept { return shared_ ? &*shared_ : nullptr; }
  /// The next operation that the leader of the world was not asked for; it may not exist yet.
  [[nodiscard]] std::uint64_t next_to_ask() const noexcept { return std::max(asked_ + 1, oldest_sequence()); }
  /// Whether the leader was asked to release this operation. Only its answer can resolve it.
  [[nodiscard]] bool is_asked(std::uint64_t sequence) const noexcept { return sequence <= asked_; }
  void note_asked(std::uint64_t sequence) noexcept { asked_ = sequence; }
  /// The leader has released the operation. Returns false if it was not asked to.
  [[nodiscard]] bool note_released(std::uint64_t sequence) noexcept;
  /// Refuses one operation, which ranks of this process may not have submitted yet. Throws std::bad_alloc.
  void refuse(std::uint64_t sequence, const std::exception_ptr& error);
  /// Notes that the rank's operations up to this one have ended.
  void note_completed(std::size_t rank, std::uint64_t sequence) noexcept {
    completed_[rank] = std::max(completed_[rank], sequence);
  }
  /// Up to which operation those of all ranks of this process have ended, if that is at least `step` more than what was
  /// returned last.
  [[nodiscard]] std::optional<std::uint64_t> take_completed(std::uint64_t step) noexcept;
  /// The rank's device. A device of this process has its local name, others have their name in the world.
  [[nodiscard]] DeviceId own_name(std::size_t rank) const noexcept {
    return local_name(devices_.devices()[rank], process_);
  }
  /// The rank of a device of this process; nothing if it is not among the devices.
  [[nodiscard]] std::optional<std::size_t> rank_of_own(DeviceId device) const noexcept;
  /// Whether the rank belongs to this process.
  [[nodiscard]] bool is_own(std::size_t rank) const noexcept {
    return !shared_ || devices_.devices()[rank].process == process_;
  }
  /// Closed by its user, but operations still wait for the leader's answer.
  bool is_closed = false;

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
  /// From which operation on; the largest number if there is no error().
  [[nodiscard]] std::uint64_t error_from() const noexcept { return error_from_; }

  [[nodiscard]] CommunicatorNumber number() const noexcept { return number_; }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] const CommunicationId& devices() const noexcept { return devices_; }
  [[nodiscard]] std::chrono::milliseconds timeout() const noexcept { return timeout_; }
  [[nodiscard]] const std::shared_ptr<FlightRecorder>& recorder() const noexcept { return recorder_; }
  /// Whether all later submissions of the rank are refused. False while the rank still has to submit an operation that
  /// precedes error(): the other ranks wait for it there.
  [[nodiscard]] bool refuses_all_of(std::size_t rank) const noexcept {
    const std::uint64_t next = std::max(next_[rank], oldest_sequence());
    const WaitingOperation* const its_next = waiting(next);
    return error_ && (its_next == nullptr ? next >= error_from_ : its_next->grant.refusal != nullptr);
  }
  /// The number of the rank's next operation.
  [[nodiscard]] std::uint64_t next(std::size_t rank) const noexcept { return next_[rank]; }
  /// "its last there was operation 3, all_reduce ...".
  [[nodiscard]] std::string last_of(std::size_t rank) const;
  /// "operation 3 of communicator 1 {...}, all_reduce ...", with the request of the rank that submitted it first.
  [[nodiscard]] std::string describe(std::uint64_t sequence) const;

 private:
  [[nodiscard]] std::uint64_t end() const noexcept { return first_ + waiting_.size(); }
  [[nodiscard]] bool ended() const noexcept { return end() >= error_from_ && resolved_ == waiting_.size(); }
  void begin(std::uint64_t sequence, Time now);
  void resolve(WaitingOperation& operation, CollectiveSubmissions& grants) noexcept;
  void drop() noexcept;

  const CommunicatorNumber number_;
  const CommunicationId devices_;
  const std::string name_;
  const std::chrono::milliseconds timeout_;
  const std::size_t max_ahead_;
  const std::shared_ptr<FlightRecorder> recorder_;
  const std::uint16_t process_;
  const std::optional<SharedSequence> shared_;
  const std::size_t own_ranks_;  // number of ranks of this process
  std::deque<WaitingOperation> waiting_;
  std::uint64_t first_ = 1;             // the sequence number of waiting_.front()
  std::size_t resolved_ = 0;            // number of resolved operations at the front of waiting_
  std::vector<std::uint64_t> next_;     // by rank: the number of its next operation
  std::vector<OperationSummary> last_;  // by rank: its last submission
  std::uint64_t awaited_ = 0;
  std::exception_ptr error_;
  // From which operation on error_ refuses all. Of a shared sequence, it may be one that no rank has submitted yet.
  std::uint64_t error_from_ = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t asked_ = 0;                              // the last operation that the leader was asked for, or skipped
  std::map<std::uint64_t, std::exception_ptr> refused_;  // by the leader, not begun
  std::vector<std::uint64_t> completed_;                 // by rank
  std::uint64_t reported_completed_ = 0;
};

}  // namespace cox::detail
