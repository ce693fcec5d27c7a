#include <coxswain/collectives/detail/communicator_sequence.hpp>

#include <coxswain/device_handle/call_error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace cox::detail {

CommunicatorSequence::CommunicatorSequence(std::string name, CommunicationId devices, std::chrono::milliseconds timeout,
                                           std::size_t max_ahead, std::shared_ptr<FlightRecorder> recorder)
    : name_(std::move(name)),
      devices_(std::move(devices)),
      timeout_(timeout),
      max_ahead_(std::max<std::size_t>(max_ahead, 1)),
      recorder_(std::move(recorder)),
      next_(devices_.world_size(), first_),
      last_(devices_.world_size()) {}

void CommunicatorSequence::check_room(std::size_t rank) const {
  if (rank >= next_.size())
    throw CollectiveError(CollectiveError::Kind::Validation,
                          fmt::format("{} has no rank {}, only {}", name_, rank, next_.size()));
  if (error_ || next_[rank] - first_ < max_ahead_) return;
  const auto slowest = static_cast<std::size_t>(std::ranges::min_element(next_) - next_.begin());
  throw CallError(CallError::Kind::QueueFull,
                  fmt::format("{} on {}: {} operations wait for {} already", devices_.devices()[rank].to_string(),
                              name_, next_[rank] - first_, devices_.devices()[slowest].to_string()));
}

bool CommunicatorSequence::begins_operation(std::size_t rank) const {
  return !error_ && next_[rank] == first_ + waiting_.size();
}

std::uint64_t CommunicatorSequence::submit(std::size_t rank, const CollectiveRequest& request, Launch launch, Time now,
                                           std::vector<LaunchAnswer>& answers) {
  const std::uint64_t sequence = next_[rank]++;
  last_[rank] = Last{sequence, request};
  recorder_->submitted(sequence, rank, request);
  if (error_) {
    answer_rank(rank, {sequence, 0, error_}, std::move(launch), answers);
    return sequence;
  }
  Operation& operation = operation_of(sequence, rank, now);
  operation.ranks[rank] = {request, std::move(launch), true};
  ++operation.arrived;
  compare(operation, sequence, rank);
  return sequence;
}

CommunicatorSequence::Operation& CommunicatorSequence::operation_of(std::uint64_t sequence, std::size_t rank,
                                                                    Time now) {
  if (waiting_.size() == sequence - first_) {
    Operation& added = waiting_.emplace_back();
    added.ranks.resize(devices_.world_size());
    added.first = rank;
    added.deadline = now + timeout_;
  }
  return waiting_[sequence - first_];
}

void CommunicatorSequence::compare(Operation& operation, std::uint64_t sequence, std::size_t rank) {
  if (operation.refusal) return;
  const CollectiveRequest& first = operation.ranks[operation.first].request;
  const CollectiveRequest& other = operation.ranks[rank].request;
  const std::optional<std::string> difference = mismatch(first, other);
  if (!difference) return;
  operation.refusal = std::make_exception_ptr(CollectiveError(
      CollectiveError::Kind::Mismatch,
      fmt::format("operation {} of {}: {} and {} ask for different things: {}", sequence, name_,
                  devices_.devices()[operation.first].to_string(), devices_.devices()[rank].to_string(), *difference),
      other.caller.site));
}

void CommunicatorSequence::settle(std::uint64_t& order, std::vector<LaunchAnswer>& answers) {
  const std::size_t world_size = devices_.world_size();
  std::uint64_t sequence = first_;
  for (Operation& operation : waiting_) {
    const std::exception_ptr refusal = operation.refusal ? operation.refusal : error_;
    if (!refusal && operation.arrived < world_size) break;  // What follows waits too: a rank's answers keep its order.
    const LaunchTurn turn{sequence++, refusal ? 0 : ++order, refusal};
    for (std::size_t rank = 0; rank < world_size; ++rank)
      if (operation.ranks[rank].launch) answer_rank(rank, turn, std::move(operation.ranks[rank].launch), answers);
  }
  while (!waiting_.empty() && (error_ || waiting_.front().arrived == world_size)) {
    waiting_.pop_front();
    ++first_;
  }
}

void CommunicatorSequence::answer_rank(std::size_t rank, const LaunchTurn& turn, Launch launch,
                                       std::vector<LaunchAnswer>& answers) {
  answers.push_back({rank, turn, std::move(launch)});
  if (turn.refusal)
    recorder_->failed(turn.sequence, rank, turn.refusal);
  else
    recorder_->released(turn.sequence, rank);
}

void CommunicatorSequence::refuse(const std::exception_ptr& error, std::vector<LaunchAnswer>& answers) {
  if (error_) return;
  error_ = error;
  std::uint64_t released = 0;  // Stays 0: what was complete is gone.
  settle(released, answers);
}

void CommunicatorSequence::reopen() {
  if (!error_) return;
  error_ = nullptr;
  first_ = std::ranges::max(next_);
  std::ranges::fill(next_, first_);
}

std::optional<std::size_t> CommunicatorSequence::oldest() const {
  for (std::size_t place = 0; place < waiting_.size(); ++place)
    if (!waiting_[place].refusal) return place;
  return std::nullopt;
}

std::optional<CommunicatorSequence::Time> CommunicatorSequence::deadline() const {
  const std::optional<std::size_t> place = oldest();
  return place ? std::optional(waiting_[*place].deadline) : std::nullopt;
}

CommunicatorSequence::Overdue CommunicatorSequence::overdue() const {
  const std::size_t place = oldest().value();
  const Operation& operation = waiting_[place];
  Overdue overdue{first_ + place, operation.ranks[operation.first].request, {}};
  for (std::size_t rank = 0; rank < operation.ranks.size(); ++rank)
    if (!operation.ranks[rank].arrived) overdue.missing.push_back({rank, devices_.devices()[rank], last_of(rank)});
  return overdue;
}

std::string CommunicatorSequence::last_of(std::size_t rank) const {
  if (!last_[rank]) return "it has submitted nothing there";
  return fmt::format("its last there was operation {}, {}", last_[rank]->sequence, to_string(last_[rank]->request));
}

}  // namespace cox::detail
