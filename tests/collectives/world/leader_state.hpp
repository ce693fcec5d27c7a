#pragma once

#include <coxswain/collectives/leader/leader.hpp>

#include <cstdint>
#include <map>
#include <string>
#include <type_traits>
#include <vector>

namespace cox::detail::world {

/// What a leader's behaviour depends on, for an exploration of its states.
struct LeaderState {
  /// The state as bytes: leaders with equal ones behave alike, up to the texts of their errors.
  static std::string of(const Leader& leader);
  /// The last broken epoch of a group; 0 if there is none.
  static std::uint64_t broken(const Leader& leader, const std::vector<DeviceId>& devices) {
    const auto found = leader.group_of_.find(devices);
    return found == leader.group_of_.end() ? 0 : leader.groups_[found->second].broken;
  }
  /// Whether an instance of the group can still release operations.
  static bool has_instance(const Leader& leader, const std::vector<DeviceId>& devices) {
    const auto found = leader.group_of_.find(devices);
    return found != leader.group_of_.end() && !leader.groups_[found->second].instances.empty();
  }

 private:
  static void append(std::string& out, const LeaderSequence& sequence,
                     const std::map<SequenceId, std::uint8_t>& places);
};

/// Appends small numbers to a state.
template <class... T>
void append(std::string& out, T... values) {
  const auto one = [&](auto value) {
    const auto number = static_cast<std::uint64_t>(value);
    if (number < 255) {
      out.push_back(static_cast<char>(number));
    } else {
      out.push_back(static_cast<char>(255));
      for (unsigned i = 0; i < 8; ++i) out.push_back(static_cast<char>((number >> (8U * i)) & 0xffU));
    }
  };
  (one(values), ...);
}

inline std::string LeaderState::of(const Leader& leader) {
  std::string out;
  std::map<SequenceId, std::uint8_t> places;  // sequences in the order of groups, epochs and directions
  for (const auto& [devices, group] : leader.group_of_)
    for (const auto& [epoch, instance] : leader.groups_[group].instances)
      for (const auto& [direction, id] : leader.instances_.at(instance).sequences)
        places.emplace(id, static_cast<std::uint8_t>(places.size() + 1));
  for (const auto& [devices, index] : leader.group_of_) {
    const Leader::Group& group = leader.groups_[index];
    world::append(out, devices.front().key(), devices.back().key(), devices.size(), group.broken,
                  group.instances.size());
    for (const auto& [epoch, id] : group.instances) {
      const Leader::Instance& instance = leader.instances_.at(id);
      world::append(out, epoch, instance.sequences.size());
      for (const auto& [direction, sequence] : instance.sequences) {
        world::append(out, direction.from, direction.to);
        append(out, *leader.sequences_.find(sequence), places);
      }
    }
  }
  for (const Leader::Process& process : leader.processes_) {
    world::append(out, process.is_present, process.bindings.size());
    std::map<std::uint64_t, std::uint8_t> bindings;
    for (const auto& [number, binding] : process.bindings)
      bindings.emplace(number, binding.sequence == 0 ? std::uint8_t{0} : places.at(binding.sequence));
    for (const auto& [number, place] : bindings) world::append(out, number, place);
  }
  world::append(out, leader.turns_, leader.questions_.size());
  for (const auto& [number, question] : leader.questions_) {
    world::append(out, number, places.at(question.about.sequence), question.about.operation,
                  question.end.time_since_epoch().count(), question.answers.size());
    for (const auto& [process, answer] : question.answers) world::append(out, process, answer.has_value());
  }
  return out;
}

inline void LeaderState::append(std::string& out, const LeaderSequence& sequence,
                                const std::map<SequenceId, std::uint8_t>& places) {
  const auto place = [&](const OperationId& operation) {
    const auto found = places.find(operation.sequence);
    world::append(out, found == places.end() ? 0 : found->second, operation.operation);
  };
  world::append(out, sequence.first_, sequence.next_, sequence.end_, sequence.awaited_, sequence.question,
                sequence.check ? sequence.check->time_since_epoch().count() + 1 : 0, sequence.in_flight_.size());
  for (const std::uint64_t each : sequence.in_flight_) world::append(out, each);
  for (const SequenceMember& member : sequence.members_)
    world::append(out, member.is_open, member.number, member.asked, member.completed);
  world::append(out, sequence.operations_.size());
  for (const PendingOperation& each : sequence.operations_) {
    world::append(out, each.asked, each.process, each.deadline.time_since_epoch().count(), each.refusal.has_value(),
                  each.fingerprint.empty() ? 255 : std::to_integer<unsigned>(each.fingerprint.front()),
                  each.awaited.size());
    for (const PendingOperation::Wait& wait : each.awaited) place(wait.operation);
  }
  place(sequence.held_on.value_or(OperationId{}));
  world::append(out, sequence.waiters.size());
  for (const auto& [operation, waiting] : sequence.waiters) place({waiting, operation});
}

}  // namespace cox::detail::world
