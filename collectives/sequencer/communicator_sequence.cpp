#include <coxswain/collectives/sequencer/communicator_sequence.hpp>

#include <coxswain/device_handle/base/call_error.hpp>
#include <coxswain/runtime/communication/collective_error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <source_location>
#include <utility>

namespace cox::detail {

CommunicatorSequence::CommunicatorSequence(CommunicatorNumber number, CommunicationId devices,
                                           std::chrono::milliseconds timeout, std::size_t max_ahead,
                                           std::shared_ptr<FlightRecorder> recorder, std::uint16_t process,
                                           std::optional<SharedSequence> shared)
    : number_(number),
      devices_(std::move(devices)),
      name_(fmt::format("communicator {} {}", static_cast<std::uint64_t>(number), devices_.to_string())),
      timeout_(timeout),
      max_ahead_(std::max<std::size_t>(max_ahead, 1)),
      recorder_(std::move(recorder)),
      process_(process),
      shared_(std::move(shared)),
      own_ranks_([&] {
        std::size_t own = 0;
        for (std::size_t rank = 0; rank < devices_.world_size(); ++rank)
          if (is_own(rank)) ++own;
        return own;
      }()),
      next_(devices_.world_size(), first_),
      last_(devices_.world_size()),
      completed_(devices_.world_size()) {}

void CommunicatorSequence::number(CollectiveSubmission& submission) const {
  const std::size_t rank = submission.rank;
  if (rank >= next_.size())
    throw CollectiveError(CollectiveError::Kind::Validation,
                          fmt::format("{} has no rank {}: it has {} ranks, counted from 0", name_, rank, next_.size()),
                          std::source_location());
  submission.grant.sequence = next_[rank];
  submission.device = own_name(rank);
  if (ended() || next_[rank] - first_ < max_ahead_) return;
  // Of the other processes' ranks it is not known what they have submitted.
  const auto slowest = static_cast<std::size_t>(std::ranges::min_element(next_) - next_.begin());
  throw CallError(
      CallError::Kind::QueueFull,
      fmt::format("call refused: queue_full: {} has {} operations on {} that wait for {}, the most allowed (setting "
                  "collectives.max_ahead)",
                  submission.device.to_string(), next_[rank] - first_, name_, devices_.devices()[slowest].to_string()));
}

std::exception_ptr CommunicatorSequence::refusal_for(const CollectiveSubmission& submission) const {
  const std::uint64_t sequence = submission.grant.sequence;
  const CollectiveRequests& requests = submission.requests;
  const std::source_location& site = requests.front().caller.site;
  if (submission.failure)
    return std::make_exception_ptr(
        CollectiveError(CollectiveError::Kind::RankFailed,
                        fmt::format("operation {} of {}: {} could not take part: {}", sequence, name_,
                                    submission.device.to_string(), submission.why),
                        site, submission.failure));
  const WaitingOperation* operation = waiting(sequence);
  if (operation == nullptr) return nullptr;
  const CollectiveSubmission& first = operation->arrived.front();
  const std::optional<std::string> difference = mismatch(first.requests, requests);
  if (!difference) return nullptr;
  return std::make_exception_ptr(
      CollectiveError(CollectiveError::Kind::Mismatch,
                      fmt::format("operation {} of {}: {} and {} submitted different operations: {}", sequence, name_,
                                  first.device.to_string(), submission.device.to_string(), *difference),
                      site));
}

void CommunicatorSequence::add(CollectiveSubmissions& submissions, const std::exception_ptr& refusal, Time now,
                               CollectiveSubmissions& grants) {
  CollectiveSubmission& added = submissions.front();
  const std::uint64_t sequence = added.grant.sequence;
  if (begins_operation(added.rank)) begin(sequence, now);
  // Nothing throws from here on: the submission is accepted.
  recorder_->submitted(sequence, added.rank, added.requests);
  ++next_[added.rank];
  last_[added.rank] = OperationSummary(added.requests);
  if (sequence >= end()) {  // All new submissions are refused, and no earlier operation is unresolved.
    added.grant.refusal = error_;
    recorder_->failed(sequence, added.rank, error_);
    grants.splice(grants.end(), submissions, submissions.begin());
    return;
  }
  WaitingOperation& operation = waiting_[sequence - first_];
  ++operation.ranks;
  if (!operation.grant.refusal) operation.grant.refusal = refusal;
  if (added.operation) operation.grant.operation = added.operation;
  operation.arrived.splice(operation.arrived.end(), submissions, submissions.begin());
  if (sequence >= oldest_sequence()) return;
  resolve(operation, grants);
  drop();
}

void CommunicatorSequence::begin(std::uint64_t sequence, Time now) {
  WaitingOperation& operation = waiting_.emplace_back();
  operation.grant.sequence = sequence;
  if (sequence >= error_from_) operation.grant.refusal = error_;
  operation.deadline = now + timeout_;
  if (refused_.empty()) return;
  if (const auto refused = refused_.extract(sequence)) operation.grant.refusal = refused.mapped();
}

std::optional<std::size_t> CommunicatorSequence::rank_of_own(DeviceId device) const noexcept {
  const DeviceId name = shared_ ? world_name(device, process_) : device;
  const auto found = std::ranges::lower_bound(devices_.devices(), name);
  if (found == devices_.devices().end() || *found != name) return std::nullopt;
  return static_cast<std::size_t>(found - devices_.devices().begin());
}

bool CommunicatorSequence::note_released(std::uint64_t sequence) noexcept {
  if (!is_asked(sequence) || sequence < oldest_sequence() || sequence >= end()) return false;
  waiting_[sequence - first_].is_released = true;
  return true;
}

void CommunicatorSequence::refuse(std::uint64_t sequence, const std::exception_ptr& error) {
  if (sequence < oldest_sequence()) return;
  if (sequence >= end()) {
    refused_.emplace(sequence, error);
    return;
  }
  WaitingOperation& operation = waiting_[sequence - first_];
  if (!operation.is_released && !operation.grant.refusal) operation.grant.refusal = error;
}

std::optional<std::uint64_t> CommunicatorSequence::take_completed(std::uint64_t step) noexcept {
  std::uint64_t all = std::numeric_limits<std::uint64_t>::max();
  for (std::size_t rank = 0; rank < completed_.size(); ++rank)
    if (is_own(rank)) all = std::min(all, completed_[rank]);
  if (all < reported_completed_ + step) return std::nullopt;
  reported_completed_ = all;
  return all;
}

const WaitingOperation* CommunicatorSequence::waiting(std::uint64_t sequence) const noexcept {
  return sequence >= oldest_sequence() && sequence < end() ? &waiting_[sequence - first_] : nullptr;
}

void CommunicatorSequence::resolve_oldest(std::uint64_t order, CollectiveSubmissions& grants) noexcept {
  WaitingOperation& operation = waiting_[resolved_++];
  operation.grant.order = order;
  resolve(operation, grants);
  drop();
}

// The grant holds reference-counted objects, and a count that several device threads modify is expensive. So the last
// rank gets the operation's grant by move, not by copy.
void CommunicatorSequence::resolve(WaitingOperation& operation, CollectiveSubmissions& grants) noexcept {
  const FlightRecorder::Time now = FlightRecorder::clock();
  for (CollectiveSubmission& submission : operation.arrived) {
    if (complete(operation) && &submission == &operation.arrived.back()) {
      submission.grant = std::move(operation.grant);
    } else {
      submission.grant = operation.grant;
    }
    if (submission.grant.refusal)
      recorder_->failed(submission.grant.sequence, submission.rank, submission.grant.refusal, now);
    else
      recorder_->released(submission.grant.sequence, submission.rank, now);
  }
  grants.splice(grants.end(), operation.arrived);
}

// Destroys no user object under the lock: the grant was moved to the rank that completed the operation.
void CommunicatorSequence::drop() noexcept {
  for (; resolved_ > 0 && complete(waiting_.front()); --resolved_, ++first_) waiting_.pop_front();
}

void CommunicatorSequence::refuse_from(std::uint64_t sequence, const std::exception_ptr& error) noexcept {
  for (std::uint64_t place = std::max(sequence, oldest_sequence()); place < end(); ++place) {
    std::exception_ptr& refusal = waiting_[place - first_].grant.refusal;
    if (!refusal) refusal = error;
  }
  if (!error_) error_ = error;
  error_from_ = std::min(error_from_, sequence);
}

std::string CommunicatorSequence::last_of(std::size_t rank) const {
  if (last_[rank].size == 0) return "it has submitted nothing to this communicator";
  return fmt::format("its last submission was operation {}, {}", next_[rank] - 1, to_string(last_[rank]));
}

std::string CommunicatorSequence::describe(std::uint64_t sequence) const {
  const WaitingOperation* operation = waiting(sequence);
  return fmt::format(
      "operation {} of {}, {}", sequence, name_,
      operation != nullptr ? to_string(operation->arrived.front().requests) : "which no rank has submitted");
}

}  // namespace cox::detail
