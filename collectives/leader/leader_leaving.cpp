#include <coxswain/collectives/leader/leader.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>

namespace cox::detail::world {

void Leader::on(std::uint16_t process, const Bye& message) {
  Process& its = processes_[process];
  if (its.leaving) return;
  ++leaving_;
  const bool in_good_order = message.text.empty();
  its.leaving = {.why = in_good_order ? "it has left the world" : "it has left the world: " + message.text,
                 .in_good_order = in_good_order,
                 .is_needed = in_good_order && !has_unfinished(process)};
  if (!its.leaving->is_needed) return;
  // An operation that is not released needs an Ask of the process, which will not come.
  const Cause cause{.kind = Kind::ProcessGone, .process = process, .text = sentence_of(process, its.leaving->why)};
  for (const InstanceId instance : std::set(its.instances)) break_instance(instance, cause);
}

std::optional<Leader::Left> Leader::next_left() const {
  if (leaving_ == 0) return std::nullopt;
  for (std::uint16_t process = 0; process < processes_.size(); ++process) {
    const std::optional<Leaving>& leaving = processes_[process].leaving;
    if (leaving && (!leaving->is_needed || !others_need(process)))
      return Left{.process = process, .why = leaving->why, .in_good_order = leaving->in_good_order};
  }
  return std::nullopt;
}

template <class Visit>
bool Leader::any_sequence_of(std::uint16_t process, const Visit& visit) const {
  return std::ranges::any_of(processes_[process].instances, [&](InstanceId id) {
    const Instance& instance = instances_.at(id);
    if (instance.is_given_up) return false;
    return std::ranges::any_of(instance.sequences, [&](const auto& entry) {
      const LeaderSequence& sequence = *sequences_.find(entry.second);
      const std::size_t index = sequence.index_of(process);
      return index != sequence.members().size() && visit(sequence, index);
    });
  });
}

// Whether the process has not completed all its released operations, and may still do so.
bool Leader::has_unfinished(std::uint16_t process) const {
  return any_sequence_of(
      process, [](const LeaderSequence& sequence, std::size_t index) { return sequence.in_flight_of(index) != 0; });
}

// Whether other processes have not completed operations that this one has completed.
bool Leader::others_need(std::uint16_t process) const {
  const auto needs = [&](const auto& unfinished) { return unfinished.second.completed_by.contains(process); };
  if (std::ranges::any_of(unfinished_, needs)) return true;
  return any_sequence_of(process, [&](const LeaderSequence& sequence, std::size_t index) {
    if (sequence.in_flight_of(index) != 0) return false;
    for (std::size_t other = 0; other < sequence.members().size(); ++other)
      if (is_unfinished(sequence, other)) return true;
    return false;
  });
}

// Whether the member has not completed all released operations, and has not closed the sequence.
bool Leader::is_unfinished(const LeaderSequence& sequence, std::size_t index) const {
  const SequenceMember& member = sequence.members()[index];
  return sequence.in_flight_of(index) != 0 && processes_[member.process].bindings.contains(member.number);
}

// The instance ends. Processes that have completed its operations may leave when the others have.
void Leader::keep_unfinished(const LeaderSequence& sequence) {
  std::set<std::uint16_t> completed_by;
  for (std::size_t index = 0; index < sequence.members().size(); ++index)
    if (sequence.in_flight_of(index) == 0) completed_by.insert(sequence.members()[index].process);
  const Instance& instance = instances_.at(sequence.instance());
  if (completed_by.empty() || instance.is_given_up) return;
  for (std::size_t index = 0; index < sequence.members().size(); ++index)
    if (const SequenceMember& member = sequence.members()[index]; is_unfinished(sequence, index))
      unfinished_[{member.process, member.number}] = {.sequence = sequence.id(),
                                                      .group = instance.group,
                                                      .epoch = instance.epoch,
                                                      .last = sequence.last_in_flight(),
                                                      .completed_by = completed_by};
}

void Leader::drop_unfinished(std::uint16_t process, std::uint64_t number, std::uint64_t completed) {
  const auto found = unfinished_.find({process, number});
  if (found == unfinished_.end() || found->second.last > completed) return;
  const SequenceId sequence = found->second.sequence;
  unfinished_.erase(found);
  for (auto& [member, unfinished] : unfinished_)
    if (unfinished.sequence == sequence) unfinished.completed_by.insert(process);
}

// A process gives the instance up, and the others do so, too: nothing of it completes any more.
void Leader::drop_given_up(const OperationOfAll& of) {
  const std::size_t group = group_of_.at(of.devices);
  std::erase_if(unfinished_,
                [&](const auto& each) { return each.second.group == group && each.second.epoch == of.epoch; });
  const auto found = groups_[group].instances.find(of.epoch);
  if (found != groups_[group].instances.end()) instances_.at(found->second).is_given_up = true;
}

void Leader::drop_unfinished_of(std::uint16_t process) {
  std::erase_if(unfinished_, [&](const auto& each) { return each.first.first == process; });
  for (auto& [member, unfinished] : unfinished_) unfinished.completed_by.erase(process);
}

}  // namespace cox::detail::world
