#include <coxswain/collectives/nccl/in_flight_operations.hpp>

#include <algorithm>
#include <utility>

namespace cox::detail {
namespace {

bool has_ended(const NcclOperation& operation) noexcept {
  return std::ranges::all_of(operation.launched, [](const NcclOperation::Launched& part) {
    return part.over || (part.end != nullptr && part.end->reached());
  });
}

}  // namespace

InFlightOperations::InFlightOperations(std::size_t ranks, Tell tell) : tell_(std::move(tell)), ranks_(ranks) {
  for (Rank& each : ranks_) {
    each.parts.reserve(most_at_a_time);
    each.sequences.reserve(most_at_a_time);
  }
}

InFlightOperations::Ended::~Ended() {
  if (rank_) {
    Rank& own = of_.ranks_[*rank_];
    if (!own.sequences.empty()) of_.tell_(*rank_, own.sequences);
    own.sequences.clear();
    own.parts.clear();
  }
  for (std::size_t i = 0; i < count_; ++i) {
    const NcclOperation& operation = *operations_[i];
    const std::uint64_t sequence = operation.sequence.load(std::memory_order_relaxed);
    for (std::size_t rank = 0; rank < operation.launched.size(); ++rank)
      if (!operation.launched[rank].over) of_.tell_(rank, {&sequence, 1});
  }
}

// The first rank to tell of an operation has told of those before it: they are added in their order.
void InFlightOperations::add(std::size_t rank, std::span<Part> parts) {
  const std::size_t known = operations_.size();
  try {
    for (const Part& part : parts)
      if (!part.operation->begun) operations_.push_back(part.operation);
  } catch (...) {
    operations_.resize(known);
    throw;
  }
  for (Part& part : parts) {
    part.operation->begun = true;
    part.operation->launched[rank] = std::move(part.launched);
  }
}

// By what the device threads know of themselves: a look at an event is dear.
void InFlightOperations::note_ended(std::size_t rank, std::uint64_t ended_before, Ended& ended) noexcept {
  ranks_[rank].ended_before = ended_before;
  ended.rank_ = rank;
  let_go(rank);
  if (rank != 0) return;
  const std::uint64_t by_all = std::ranges::min_element(ranks_, {}, &Rank::let_go)->let_go;
  take(ended, [&](const NcclOperation&) { return before_ < by_all; });
}

// Of its parts of what has ended on all devices.
void InFlightOperations::let_go(std::size_t rank) noexcept {
  Rank& own = ranks_[rank];
  const std::uint64_t on_all = std::ranges::min_element(ranks_, {}, &Rank::ended_before)->ended_before;
  while (own.parts.size() < most_at_a_time && own.let_go < before_ + operations_.size()) {
    NcclOperation& operation = *operations_[own.let_go - before_];
    const std::uint64_t sequence = operation.sequence.load(std::memory_order_relaxed);
    if (sequence > on_all) return;
    own.sequences.push_back(sequence);  // there is room
    own.parts.push_back(std::exchange(operation.launched[rank], {}));
    operation.launched[rank].over = true;
    ++own.let_go;
  }
}

bool InFlightOperations::look(Ended& ended) noexcept {
  take(ended, has_ended);
  return ended.count_ == ended.operations_.size();
}

void InFlightOperations::give_up(Operations& into) noexcept {
  before_ += operations_.size();
  for (Rank& each : ranks_) each.let_go = before_;
  into.swap(operations_);
}

template <class HasEnded>
void InFlightOperations::take(Ended& ended, const HasEnded& has_ended) noexcept {
  while (ended.count_ < ended.operations_.size() && !operations_.empty() && has_ended(*operations_.front())) {
    ended.operations_[ended.count_++] = std::move(operations_.front());
    operations_.pop_front();
    ++before_;
  }
  for (Rank& each : ranks_) each.let_go = std::max(each.let_go, before_);
}

}  // namespace cox::detail
