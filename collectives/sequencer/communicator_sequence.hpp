#pragma once

#include <coxswain/collectives/sequencer/collective_launch.hpp>
#include <coxswain/collectives/sequencer/queued_submission.hpp>
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

/// An operation that waits for ranks or for other operations, or whose refusal not all ranks have asked for yet.
struct WaitingOperation {
  QueuedSubmissions arrived;  ///< The ranks that arrived and are not resolved, in the order of arrival.
  std::size_t ranks = 0;      ///< How many arrived.
  std::chrono::steady_clock::time_point deadline{};
  LaunchGrant grant{};        ///< What its ranks are granted. With a refusal: refused.
  bool is_explained = false;  ///< Whoever waits for it has been told why.
};

/// The operations of one communicator, resolved one after the other: released or refused. No thread of its own and no
/// lock: the owner has one. Grants are collected, never called.
///
///     first_        first_ + resolved_      end()
///     | refused, ranks to come | not resolved | not submitted by anybody
class CommunicatorSequence {
 public:
  using Time = std::chrono::steady_clock::time_point;

  CommunicatorSequence(CommunicatorNumber number, CommunicationId devices, std::chrono::milliseconds timeout,
                       std::size_t max_ahead, std::shared_ptr<FlightRecorder> recorder);

  /// Writes the operation's number and the device into the submission. Throws CollectiveError Validation (no such rank)
  /// and CallError QueueFull: the rank is too far ahead of the slowest.
  void number(QueuedSubmission& submission) const;
  /// Whether the rank's next request is one that others will have to follow.
  [[nodiscard]] bool begins_operation(std::size_t rank) const noexcept { return !ended() && next_[rank] == end(); }
  /// Why the operation must be refused when this submission, a numbered one, is added: its failure or a mismatch.
  /// nullptr if for neither.
  [[nodiscard]] std::exception_ptr refusal_for(const QueuedSubmission& submission) const;
  /// Takes the numbered submission out of its list, and refuses its operation if there is a refusal
  /// and was none before. Resolves the submission at once if all that the rank has submitted is resolved. If it throws
  /// (std::bad_alloc), nothing has changed.
  void add(QueuedSubmissions& submission, const std::exception_ptr& refusal, Time now, QueuedSubmissions& grants);

  /// The oldest operation that is not resolved; nullptr if there is none.
  [[nodiscard]] const WaitingOperation* oldest() const noexcept { return waiting(first_ + resolved_); }
  [[nodiscard]] std::uint64_t oldest_sequence() const noexcept { return first_ + resolved_; }
  /// nullptr if the operation is resolved, or no rank has submitted it.
  [[nodiscard]] const WaitingOperation* waiting(std::uint64_t sequence) const noexcept;
  [[nodiscard]] bool complete(const WaitingOperation& operation) const noexcept {
    return operation.ranks == next_.size();
  }
  /// Whether nothing waits for this operation any more: it was released, or it is refused.
  [[nodiscard]] bool is_resolved(std::uint64_t sequence) const noexcept {
    return sequence < oldest_sequence() || ended();
  }
  /// Releases the oldest operation as the `order`th of all, or tells its refusal.
  void resolve_oldest(std::uint64_t order, QueuedSubmissions& grants) noexcept;
  /// Marks what is not resolved from this number on as refused, and everything that will come. The first error stays.
  void refuse_from(std::uint64_t sequence, const std::exception_ptr& error) noexcept;
  /// Moves the deadlines of all that is not resolved.
  void postpone(Time::duration by) noexcept {
    for (WaitingOperation& operation : waiting_) operation.deadline += by;
  }
  /// The oldest operation has been explained.
  void note_explained() noexcept {
    if (resolved_ < waiting_.size()) waiting_[resolved_].is_explained = true;
  }
  /// When the oldest operation was first asked for.
  [[nodiscard]] Time oldest_since() const noexcept { return oldest()->deadline - timeout_; }
  /// Some operation waits for this one.
  void note_awaited(std::uint64_t sequence) noexcept { awaited_ = std::max(awaited_, sequence); }
  /// No operation waits, or did, for one after this.
  [[nodiscard]] std::uint64_t awaited() const noexcept { return awaited_; }
  /// Why everything that comes is refused; nullptr if it is not.
  [[nodiscard]] const std::exception_ptr& error() const noexcept { return error_; }

  [[nodiscard]] CommunicatorNumber number() const noexcept { return number_; }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] const CommunicationId& devices() const noexcept { return devices_; }
  [[nodiscard]] std::chrono::milliseconds timeout() const noexcept { return timeout_; }
  [[nodiscard]] const std::shared_ptr<FlightRecorder>& recorder() const noexcept { return recorder_; }
  /// Whether everything is refused that the rank submits from now on. Not yet where others wait for it in an operation
  /// from before error().
  [[nodiscard]] bool refuses_all_of(std::size_t rank) const noexcept {
    const WaitingOperation* const its_next = waiting(next_[rank]);
    return error_ && (its_next == nullptr || its_next->grant.refusal);
  }
  /// The rank's next operation.
  [[nodiscard]] std::uint64_t next(std::size_t rank) const noexcept { return next_[rank]; }
  /// "its last there was operation 3, all_reduce ...".
  [[nodiscard]] std::string last_of(std::size_t rank) const;
  /// "operation 3 of communicator 1 {...}, all_reduce ...", with the request of the rank that came first.
  [[nodiscard]] std::string describe(std::uint64_t sequence) const;

 private:
  [[nodiscard]] std::uint64_t end() const noexcept { return first_ + waiting_.size(); }
  [[nodiscard]] bool ended() const noexcept { return error_ && resolved_ == waiting_.size(); }
  void begin(std::uint64_t sequence, Time now);
  void resolve(WaitingOperation& operation, QueuedSubmissions& grants) noexcept;
  void drop() noexcept;

  const CommunicatorNumber number_;
  const CommunicationId devices_;
  const std::string name_;
  const std::chrono::milliseconds timeout_;
  const std::size_t max_ahead_;
  const std::shared_ptr<FlightRecorder> recorder_;
  std::deque<WaitingOperation> waiting_;
  std::uint64_t first_ = 1;             // the sequence number of waiting_.front()
  std::size_t resolved_ = 0;            // of waiting_, in front
  std::vector<std::uint64_t> next_;     // of each rank
  std::vector<OperationSummary> last_;  // of each rank
  std::uint64_t awaited_ = 0;
  std::exception_ptr error_;
};

}  // namespace cox::detail
