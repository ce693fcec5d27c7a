#include <coxswain/collectives/leader/leader.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace cox::detail::world {

void Leader::joined(std::uint16_t process, ProcessFacts facts) {
  Process& joining = processes_.at(process);
  joining.facts = std::move(facts);
  joining.is_present = true;
  for (const Group& group : groups_)
    if (group.broken != 0 && std::ranges::binary_search(group.processes, process))
      send(process, Broken{.devices = group.devices,
                           .epoch = group.broken,
                           .kind = group.kind,
                           .process = group.culprit,
                           .text = group.text});
  for (std::uint16_t other = 0; other < processes_.size(); ++other)
    if (!processes_[other].is_present)
      send(process, Gone{.process = other, .kind = Kind::ProcessGone, .text = name(other) + " is gone"});
  for (std::uint16_t other = 0; other < processes_.size(); ++other)
    if (processes_[other].is_present) send(other, Joined{process, joining.facts});
}

void Leader::gone(std::uint16_t process, Kind kind, const std::string& text) {
  Process& leaving = processes_.at(process);
  if (!leaving.is_present) return;
  leaving.is_present = false;
  if (std::exchange(leaving.leaving, std::nullopt)) --leaving_;
  leaving.bindings.clear();
  const std::string sentence = sentence_of(process, text);
  // Before the Gone: with that, processes abort what they have launched, and report this as the cause.
  for (const InstanceId instance : std::exchange(leaving.instances, {}))
    break_instance(instance, {.kind = kind, .process = process, .text = sentence});
  for (std::size_t other = 0; other < processes_.size(); ++other)
    if (processes_[other].is_present) send(static_cast<std::uint16_t>(other), Gone{process, kind, sentence});
  forget_marks_of(process);
  drop_unfinished_of(process);
  advance_ready();
}

Leader::Fault Leader::check_group(std::uint16_t process, const Open& open) const {
  const std::vector<DeviceId>& devices = open.devices;
  const auto process_of = [](DeviceId device) { return static_cast<std::uint16_t>(device.process - 1); };
  if (devices.size() < 2 || devices.size() > max_devices) return fmt::format("a group has {} devices", devices.size());
  if (std::ranges::adjacent_find(devices, std::ranges::greater_equal{}) != devices.end())
    return "the devices of a group are not sorted";
  for (const DeviceId device : devices)
    if (device.process == 0 || device.process > processes_.size())
      return fmt::format("a group has {}, which is no device of the world", device.to_string());
  const Direction direction = open.direction;
  if (direction != Direction{} && direction != creation_direction) {
    if (direction.from >= devices.size() || direction.to >= devices.size())
      return fmt::format("a group of {} devices has no ranks {} and {}", devices.size(), direction.from, direction.to);
    const std::uint16_t from = process_of(devices[direction.from]);
    const std::uint16_t to = process_of(devices[direction.to]);
    if (from == to || (from != process && to != process))
      return fmt::format("transfers between ranks of processes {} and {}", from, to);
  } else if (std::ranges::find(devices, process, process_of) == devices.end()) {
    return "a group without a device of the process";
  } else if (std::ranges::find_if(devices, [&](DeviceId each) { return process_of(each) != process; }) ==
             devices.end()) {
    return "a group of devices of one process";
  }
  if (open.epoch == 0) return "an epoch of 0";
  return std::nullopt;
}

Leader::Fault Leader::on(std::uint16_t process, Open& open) {
  Process& opening = processes_[process];
  if (opening.bindings.contains(open.number)) return fmt::format("it opens communicator {} twice", open.number);
  if (opening.bindings.size() >= max_sequences)
    return fmt::format("it has more than {} communicators and directions of transfers open", max_sequences);
  if (Fault fault = check_group(process, open)) return fault;
  if (groups_.size() == options_.max_groups && !group_of_.contains(open.devices))
    return fmt::format("the world has more than {} groups", groups_.size());
  const auto [known, is_new] = group_of_.try_emplace(open.devices, groups_.size());
  if (is_new) {
    Group group{.devices = open.devices};
    for (const DeviceId device : open.devices)
      group.processes.push_back(static_cast<std::uint16_t>(device.process - 1));
    std::ranges::sort(group.processes);
    group.processes.erase(std::ranges::unique(group.processes).begin(), group.processes.end());
    groups_.push_back(std::move(group));
  }
  Group& group = groups_[known->second];
  if (open.epoch > group.broken + 1)
    return fmt::format("it opens epoch {} of a group whose last broken epoch is {}", open.epoch, group.broken);
  const auto found = group.instances.find(open.epoch);
  if (found != group.instances.end()) return bind(process, open, found->second);
  if (open.epoch <= group.broken) {  // it has a Broken, or one is on its way
    opening.bindings.emplace(open.number, Binding{});
    return std::nullopt;
  }
  const InstanceId instance = make_instance(known->second, open.epoch);
  if (Fault fault = bind(process, open, instance)) return fault;
  const auto absent = std::ranges::find_if(
      group.processes, [&](auto each) { return !processes_[each].is_present || processes_[each].leaving; });
  if (absent != group.processes.end())
    break_instance(instance, {.kind = Kind::ProcessGone, .process = *absent, .text = name(*absent) + " is gone"});
  return std::nullopt;
}

Leader::InstanceId Leader::make_instance(std::size_t group, std::uint64_t epoch) {
  const InstanceId id = ++last_instance_;
  instances_.emplace(id, Instance{group, epoch});
  groups_[group].instances.emplace(epoch, id);
  for (const std::uint16_t each : groups_[group].processes)
    if (processes_[each].is_present) processes_[each].instances.insert(id);
  return id;
}

Leader::Fault Leader::bind(std::uint16_t process, const Open& open, InstanceId id) {
  Instance& instance = instances_.at(id);
  const Group& group = groups_[instance.group];
  Process& opening = processes_[process];
  auto known = instance.sequences.find(open.direction);
  if (known == instance.sequences.end()) {
    if (group.broken >= instance.epoch) {  // all operations of the new sequence are broken
      opening.bindings.emplace(open.number, Binding{});
      return std::nullopt;
    }
    std::vector<std::uint16_t> members = group.processes;
    if (open.direction != Direction{} && open.direction != creation_direction) {
      const auto process_of = [&](std::uint16_t rank) {
        return static_cast<std::uint16_t>(group.devices[rank].process - 1);
      };
      members = {process_of(open.direction.from), process_of(open.direction.to)};
      std::ranges::sort(members);
    }
    known = instance.sequences.emplace(open.direction, sequences_.add(id, open.direction, members).id()).first;
  }
  LeaderSequence& sequence = *sequences_.find(known->second);
  const std::size_t index = sequence.index_of(process);
  SequenceMember& member = sequence.members()[index];
  if (member.is_open) return fmt::format("communicator {} is open already, as {}", open.number, member.number);
  member.is_open = true;
  member.number = open.number;
  member.timeout = std::clamp(open.timeout, std::chrono::milliseconds(0), max_timeout);
  opening.bindings.emplace(open.number, Binding{sequence.id(), index});
  send_known_refusals(sequence, member);
  return std::nullopt;
}

void Leader::send_known_refusals(const LeaderSequence& sequence, const SequenceMember& member) {
  for (std::uint64_t operation = sequence.first(); operation <= sequence.last(); ++operation)
    if (const auto& refusal = sequence.find(operation)->refusal)
      send(member.process, Refused{member.number, operation, refusal->kind, refusal->text});
}

Leader::Fault Leader::on(std::uint16_t process, Break& message) {
  LeaderSequence* sequence = nullptr;
  std::size_t member = 0;
  if (Fault fault = find_sequence(process, message.number, sequence, member)) return fault;
  if (sequence == nullptr) return std::nullopt;
  std::string text = name(process) + ": " + message.text;
  cut(text, max_text);
  break_instance(sequence->instance(), {.kind = message.kind,
                                        .process = process,
                                        .text = std::move(text),
                                        .sequence = sequence->id(),
                                        .from = message.from});
  return std::nullopt;
}

Leader::Fault Leader::on(std::uint16_t process, Close& message) {
  LeaderSequence* sequence = nullptr;
  std::size_t member = 0;
  if (Fault fault = find_sequence(process, message.number, sequence, member)) return fault;
  if (sequence != nullptr)
    break_instance(sequence->instance(),
                   {.kind = Kind::Aborted, .process = process, .text = name(process) + " has closed the communicator"});
  processes_[process].bindings.erase(message.number);
  drop_unfinished(process, message.number, LeaderSequence::endless);
  return std::nullopt;
}

void Leader::break_instance(InstanceId id, const Cause& cause) {
  const Instance& instance = instances_.at(id);
  Group& group = groups_[instance.group];
  bool has_changed = false;
  for (const auto& [direction, sequence_id] : instance.sequences) {
    LeaderSequence& sequence = *sequences_.find(sequence_id);
    if (!sequence.end_at(sequence_id == cause.sequence ? cause.from : 0)) continue;
    has_changed = true;
    if (sequence.next() == sequence.end()) drop_question(sequence);
    wake_waiters(sequence);
  }
  if (group.broken < instance.epoch) {
    has_changed = true;
    group.broken = instance.epoch;
    group.kind = cause.kind;
    group.culprit = cause.process;
    group.text = cause.text;
  }
  if (has_changed) send_broken(instance, cause);
  end_if_finished(id);
}

void Leader::send_broken(const Instance& instance, const Cause& cause) {
  const Group& group = groups_[instance.group];
  for (const std::uint16_t process : group.processes) {
    if (!processes_[process].is_present) continue;
    Broken broken{.devices = group.devices,
                  .epoch = instance.epoch,
                  .kind = cause.kind,
                  .process = cause.process,
                  .text = cause.text};
    for (const auto& [direction, sequence_id] : instance.sequences) {
      const LeaderSequence& sequence = *sequences_.find(sequence_id);
      if (sequence.end() > 1 && sequence.index_of(process) < sequence.members().size())
        broken.ends.push_back({direction, sequence.end()});
    }
    send(process, std::move(broken));
  }
}

// Forgets the instance if it is broken and no process can ask an operation of it that is not.
void Leader::end_if_finished(InstanceId id) {
  const auto found = instances_.find(id);
  if (found == instances_.end()) return;
  const Instance& instance = found->second;
  Group& group = groups_[instance.group];
  if (group.broken < instance.epoch) return;
  for (const auto& [direction, sequence_id] : instance.sequences)
    if (!sequences_.find(sequence_id)->is_finished()) return;
  for (const auto& [direction, sequence_id] : instance.sequences) {
    LeaderSequence& sequence = *sequences_.find(sequence_id);
    keep_unfinished(sequence);
    for (const SequenceMember& member : sequence.members()) {
      auto& bindings = processes_[member.process].bindings;
      const auto binding = bindings.find(member.number);
      if (member.is_open && binding != bindings.end() && binding->second.sequence == sequence_id)
        binding->second.sequence = 0;
    }
    watch_at(sequence, std::nullopt);
    sequences_.erase(sequence_id);
  }
  for (const std::uint16_t process : group.processes) processes_[process].instances.erase(id);
  group.instances.erase(instance.epoch);
  instances_.erase(found);
}

}  // namespace cox::detail::world
