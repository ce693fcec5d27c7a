#include <coxswain/collectives/leader/leader_sequence.hpp>

#include <algorithm>

namespace cox::detail::world {

LeaderSequence::LeaderSequence(SequenceId id, std::uint64_t instance, Direction direction,
                               const std::vector<std::uint16_t>& processes)
    : id_(id), instance_(instance), direction_(direction), slowest_(processes.size()) {
  members_.reserve(processes.size());
  for (const std::uint16_t process : processes) members_.push_back({.process = process});
}

std::size_t LeaderSequence::index_of(std::uint16_t process) const noexcept {
  const auto found = std::ranges::lower_bound(members_, process, {}, &SequenceMember::process);
  return found != members_.end() && found->process == process ? static_cast<std::size_t>(found - members_.begin())
                                                              : members_.size();
}

PendingOperation* LeaderSequence::find(std::uint64_t operation) noexcept {
  return operation < first_ || operation > last() ? nullptr : &operations_[operation - first_];
}

const PendingOperation* LeaderSequence::find(std::uint64_t operation) const noexcept {
  return operation < first_ || operation > last() ? nullptr : &operations_[operation - first_];
}

PendingOperation& LeaderSequence::count(std::size_t member) {
  const std::uint64_t operation = ++members_[member].asked;
  if (operation > last()) operations_.emplace_back();
  PendingOperation& pending = operations_[operation - first_];
  ++pending.asked;
  return pending;
}

void LeaderSequence::resolve_next(bool released) {
  if (released) in_flight_.push_back(next_);
  ++next_;
}

void LeaderSequence::drop_known() noexcept {
  while (first_ < next_ && operations_.front().asked == members_.size()) {
    operations_.pop_front();
    ++first_;
  }
}

bool LeaderSequence::end_at(std::uint64_t from) noexcept {
  // Operations in [first_, next_) are refused; members that have not asked for them yet get the error of the break.
  from = std::max(from, first_);
  if (from >= end_) return false;
  end_ = from;
  next_ = std::min(next_, end_);
  while (last() >= end_) operations_.pop_back();
  return true;
}

void LeaderSequence::complete(std::size_t member, std::uint64_t completed) noexcept {
  const std::uint64_t before = std::exchange(members_[member].completed, completed);
  if (before != completed_ || before == completed || --slowest_ != 0) return;
  completed_ = std::ranges::min(members_, {}, &SequenceMember::completed).completed;
  slowest_ = static_cast<std::size_t>(std::ranges::count(members_, completed_, &SequenceMember::completed));
  while (!in_flight_.empty() && in_flight_.front() <= completed_) in_flight_.pop_front();
}

std::size_t LeaderSequence::in_flight_of(std::size_t member) const noexcept {
  const auto first = std::ranges::upper_bound(in_flight_, members_[member].completed);
  return static_cast<std::size_t>(in_flight_.end() - first);
}

LeaderSequence& LeaderSequences::add(std::uint64_t instance, Direction direction,
                                     const std::vector<std::uint16_t>& processes) {
  const SequenceId id = ++last_;
  return sequences_.try_emplace(id, id, instance, direction, processes).first->second;
}

LeaderSequence* LeaderSequences::find(SequenceId id) noexcept {
  const auto found = sequences_.find(id);
  return found == sequences_.end() ? nullptr : &found->second;
}

const LeaderSequence* LeaderSequences::find(SequenceId id) const noexcept {
  const auto found = sequences_.find(id);
  return found == sequences_.end() ? nullptr : &found->second;
}

bool LeaderSequences::is_resolved(const OperationId& operation) const noexcept {
  const LeaderSequence* const sequence = find(operation.sequence);
  return sequence == nullptr || sequence->is_resolved(operation.operation);
}

}  // namespace cox::detail::world
