#include <coxswain/collectives/leader/leader.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

namespace cox::detail::world {

std::string Leader::name(std::uint16_t process) const { return name_of_process(process, processes_[process].facts); }

std::string Leader::sentence_of(std::uint16_t process, const std::string& why) const {
  std::string sentence = name(process) + " is gone: " + why;
  cut(sentence, max_text);
  return sentence;
}

// "operation 3 of {p0/host:0, p1/host:0}", "transfer 3 from p0/host:0 to p1/host:0", or "the creation of {p0/cuda:0,
// p1/cuda:0}".
std::string Leader::name(OperationId operation) const {
  constexpr std::size_t most = 8;
  const LeaderSequence& sequence = *sequences_.find(operation.sequence);
  const std::vector<DeviceId>& devices = groups_[instances_.at(sequence.instance()).group].devices;
  const bool is_creation = sequence.direction() == creation_direction;
  if (const Direction direction = sequence.direction(); direction != Direction{} && !is_creation)
    return fmt::format("transfer {} from {} to {}", operation.operation, devices[direction.from].to_string(),
                       devices[direction.to].to_string());
  std::string text = is_creation ? "the creation of {" : fmt::format("operation {} of {{", operation.operation);
  for (std::size_t i = 0; i < devices.size() && i < most; ++i) text += (i == 0 ? "" : ", ") + devices[i].to_string();
  if (devices.size() > most) text += fmt::format(" and {} more", devices.size() - most);
  return text + "}";
}

// With the request of the process that asked it first.
std::string Leader::name_with_request(OperationId operation) const {
  const PendingOperation* const pending = sequences_.find(operation.sequence)->find(operation.operation);
  std::string text = name(operation);
  if (pending != nullptr && !pending->description.empty()) text += ", " + pending->description;
  return text;
}

std::string Leader::cycle_text(const std::vector<CycleStep>& cycle) const {
  std::string text = "operations would wait for each other forever: " + name_with_request(cycle.front().operation);
  for (std::size_t i = 0; i < cycle.size(); ++i) {
    const OperationId next = cycle[(i + 1) % cycle.size()].operation;
    text += fmt::format(" waits, in {}, for ", name(cycle[i].process));
    if (cycle[i].awaited != next) text += name_with_request(cycle[i].awaited) + ", which comes after ";
    text += i + 1 == cycle.size() ? "the first operation" : name_with_request(next) + ", which";
  }
  return text;
}

std::string Leader::overdue_text(const Question& question, const Root& root) const {
  const OperationId about = question.about;
  const LeaderSequence& sequence = *sequences_.find(about.sequence);
  const LeaderSequence& waits_for = *sequences_.find(root.operation.sequence);
  const PendingOperation& pending = *sequence.find_next();
  const std::size_t first = sequence.index_of(pending.process);
  std::string text = fmt::format("{} was not released within {} ms", name_with_request(about),
                                 sequence.members()[first].timeout.count());
  if (&waits_for != &sequence) text += ": it waits for " + name_with_request(root.operation);
  for (const std::uint16_t process : root.missing) {
    const SequenceMember& member = waits_for.members()[waits_for.index_of(process)];
    text += "; " + name(process);
    if (root.is_behind)
      text += fmt::format(" has completed {} operations there, too few for another one", member.completed);
    else if (member.asked == 0)
      text += " is missing, and has submitted none there";
    else
      text += fmt::format(" is missing, its last there was operation {}", member.asked);
    const auto& answer = question.answers.at(process);
    text += answer ? ": " + *answer : fmt::format(": it did not answer within {} ms", options_.answer_time.count());
  }
  cut(text, max_text);
  return text;
}

LeaderReport Leader::report() const {
  LeaderReport report{.released = turns_};
  for (std::uint16_t process = 0; process < processes_.size(); ++process)
    report.processes.push_back({.is_present = processes_[process].is_present,
                                .facts = processes_[process].facts,
                                .is_awaited = awaits(process)});
  for (const auto& [id, sequence] : sequences_.all()) {
    for (std::size_t member = 0; member < sequence.members().size(); ++member)
      report.processes[sequence.members()[member].process].in_flight += sequence.in_flight_of(member);
    const PendingOperation* const pending = sequence.find_next();
    if (pending == nullptr || pending->refusal) continue;
    const Root root = root_of(sequence);
    const OperationId operation{id, sequence.next()};
    report.operations.push_back(
        {.name = name_with_request(operation),
         .waits_for = root.operation == operation ? std::string() : name_with_request(root.operation),
         .missing = root.missing,
         .is_behind = root.is_behind,
         .deadline = pending->deadline});
  }
  std::ranges::sort(report.operations, {}, [](const auto& each) { return std::tie(each.deadline, each.name); });
  if (report.operations.size() > LeaderReport::most_operations) report.operations.resize(LeaderReport::most_operations);
  return report;
}

}  // namespace cox::detail::world
