#include <coxswain/collectives/nccl/in_flight_operations.hpp>

#include <algorithm>
#include <utility>

namespace cox::detail {
namespace {

bool is_reached(const std::shared_ptr<DeviceEvent>& device_event) noexcept { return device_event->reached(); }

}  // namespace

InFlightOperations::InFlightOperations(std::size_t ranks, CompletedCallback on_completed)
    : on_completed_(std::move(on_completed)), ranks_(ranks) {
  for (Rank& each : ranks_) {
    each.launches.reserve(max_batch);
    each.sequences.reserve(max_batch);
  }
}

InFlightOperations::CompletedBatch::~CompletedBatch() {
  if (rank_) {
    Rank& own = owner_.ranks_[*rank_];
    if (!own.sequences.empty()) owner_.on_completed_(*rank_, own.sequences);
    own.sequences.clear();
    own.launches.clear();
  }
  for (const std::shared_ptr<NcclOperation>& ended : operations_) {
    NcclOperation& operation = *ended;
    const std::uint64_t sequence = operation.sequence.load(std::memory_order_relaxed);
    for (std::size_t rank = 0; rank < operation.ranks.size(); ++rank)
      if (!operation.ranks[rank].completed) owner_.on_completed_(rank, {&sequence, 1});
  }
}

// A rank that is the first to add an operation has added all earlier operations. So operations_ stays in order.
void InFlightOperations::add(std::size_t rank, std::span<std::shared_ptr<NcclLaunch>> launches) {
  const std::size_t known = operations_.size();
  try {
    for (const auto& launch : launches)
      if (!launch->operation->is_started) operations_.push_back(launch->operation);
  } catch (...) {
    operations_.resize(known);
    throw;
  }
  for (auto& launch : launches) {
    const std::shared_ptr<NcclOperation> operation = std::move(launch->operation);
    operation->is_started = true;
    operation->ranks[rank].completion = launch->completion;
    operation->ranks[rank].launch = std::move(launch);
  }
}

// Uses the progress that the device threads report, because polling an event is expensive.
void InFlightOperations::note_completed(std::size_t rank, std::uint64_t completed_before,
                                        CompletedBatch& completed) noexcept {
  ranks_[rank].completed_before = completed_before;
  completed.rank_ = rank;
  release_launches(rank);
  if (rank != 0) return;
  const std::uint64_t by_all = std::ranges::min_element(ranks_, {}, &Rank::released)->released;
  pop_completed(completed, [&](const NcclOperation&) { return before_ < by_all; });
}

// Releases the rank's launches of operations that have completed on all devices.
void InFlightOperations::release_launches(std::size_t rank) noexcept {
  Rank& own = ranks_[rank];
  const std::uint64_t on_all = std::ranges::min_element(ranks_, {}, &Rank::completed_before)->completed_before;
  while (own.launches.size() < max_batch && own.released < before_ + operations_.size()) {
    NcclOperation& operation = *operations_[own.released - before_];
    const std::uint64_t sequence = operation.sequence.load(std::memory_order_relaxed);
    if (sequence > on_all) return;
    own.sequences.push_back(sequence);  // does not allocate: the constructor reserved max_batch
    own.launches.push_back(std::move(operation.ranks[rank].launch));
    operation.ranks[rank] = {.launch = nullptr, .completion = nullptr, .completed = true};
    ++own.released;
  }
}

std::optional<InFlightOperations::Oldest> InFlightOperations::oldest() const {
  if (operations_.empty()) return std::nullopt;
  return Oldest{.operation = operations_.front(), .ranks = operations_.front()->ranks, .number = before_};
}

bool InFlightOperations::Oldest::has_ended() const noexcept {
  return std::ranges::all_of(ranks, [](const NcclOperation::RankState& rank) {
    return rank.completed || (rank.completion != nullptr && rank.completion->reached());
  });
}

SmallVector<bool, 8> InFlightOperations::Oldest::arrivals() const {
  SmallVector<bool, 8> arrivals;
  for (const NcclOperation::RankState& rank : ranks)
    arrivals.push_back(rank.completed ||
                       (rank.launch != nullptr && std::ranges::all_of(rank.launch->dependencies, is_reached)));
  return arrivals;
}

bool InFlightOperations::is_overdue(const Oldest& oldest, std::size_t arrived, NcclOperation::Time::duration timeout,
                                    NcclOperation::Time now) noexcept {
  if (operations_.empty() || oldest.number != before_) return false;
  NcclOperation& operation = *oldest.operation;
  if (arrived == 0 || arrived != operation.arrived) {
    operation.arrived = arrived;
    operation.arrived_since = now;
  }
  return now - operation.arrived_since >= timeout;
}

void InFlightOperations::pop(const Oldest& ended, CompletedBatch& completed) noexcept {
  pop_completed(completed, [&](const NcclOperation&) { return before_ == ended.number; });
}

void InFlightOperations::abandon(Operations& abandoned) noexcept {
  before_ += operations_.size();
  for (Rank& each : ranks_) each.released = before_;
  abandoned.swap(operations_);
}

template <class HasEnded>
void InFlightOperations::pop_completed(CompletedBatch& completed, const HasEnded& has_ended) noexcept {
  while (completed.operations_.size() < max_batch && !operations_.empty() && has_ended(*operations_.front())) {
    completed.operations_.unchecked_push_back(std::move(operations_.front()));
    operations_.pop_front();
    ++before_;
  }
  for (Rank& each : ranks_) each.released = std::max(each.released, before_);
}

}  // namespace cox::detail
