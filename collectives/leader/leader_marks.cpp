#include <coxswain/collectives/leader/leader.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace cox::detail::world {

// The other processes of the group that are present. The instance may have ended.
Leader::Fault Leader::find_others(std::uint16_t process, const OperationOfAll& of,
                                  std::set<std::uint16_t>& others) const {
  if (const auto known = group_of_.find(of.devices); known != group_of_.end()) {
    const std::vector<std::uint16_t>& members = groups_[known->second].processes;
    if (!std::ranges::binary_search(members, process)) return "it has no device of the group";
    for (const std::uint16_t member : members)
      if (member != process && processes_[member].is_present) others.insert(member);
    return std::nullopt;
  }
  return fmt::format("it names a group of {} devices that no process has opened", of.devices.size());
}

Leader::Fault Leader::on(std::uint16_t process, Share& message) {
  std::set<std::uint16_t> others;
  if (Fault fault = find_others(process, message.of, others)) return fault;
  for (const std::uint16_t other : others) send(other, message);
  return std::nullopt;
}

Leader::Fault Leader::on(std::uint16_t process, Mark& message) {
  std::set<std::uint16_t> others;
  if (Fault fault = find_others(process, message.of, others)) return fault;
  const auto pending = std::ranges::count_if(marks_, [&](const auto& mark) { return mark.second.origin == process; });
  if (static_cast<std::size_t>(pending) >= max_marks)
    return fmt::format("it has sent {} marks that are not noted", max_marks);
  if (message.of.operation == 0) drop_given_up(message.of);
  const std::uint64_t id = ++last_mark_;
  marks_.emplace(id, PendingMark{.origin = process, .id = message.id, .missing = others});
  message.id = id;
  message.text = name(process) + ": " + message.text;
  cut(message.text, max_text);
  for (const std::uint16_t other : others) send(other, message);
  finish_if_noted(id);
  return std::nullopt;
}

Leader::Fault Leader::on(std::uint16_t process, const MarkNoted& message) {
  if (message.id == 0 || message.id > last_mark_)
    return fmt::format("it has noted mark {}, which does not exist", message.id);
  const auto found = marks_.find(message.id);  // none: the process that sent it is gone
  if (found != marks_.end() && found->second.missing.erase(process) != 0) finish_if_noted(message.id);
  return std::nullopt;
}

Leader::Fault Leader::on(std::uint16_t process, const LinkCheck& message) {
  if (message.process >= processes_.size() || message.process == process)
    return fmt::format("it checks its link to process {}", message.process);
  if (!processes_[message.process].is_present) return std::nullopt;  // the sender will learn that
  LinkCheck passed_on = message;
  passed_on.process = process;
  send(message.process, passed_on);
  return std::nullopt;
}

void Leader::finish_if_noted(std::uint64_t mark) {
  const auto found = marks_.find(mark);
  if (!found->second.missing.empty()) return;
  send(found->second.origin, MarkNoted{.id = found->second.id});
  marks_.erase(found);
}

// The process is gone: the others do not wait for it, and its own marks have no sender any more.
void Leader::forget_marks_of(std::uint16_t process) {
  std::vector<std::uint64_t> noted;
  for (auto next = marks_.begin(); next != marks_.end();) {
    const auto at = next++;
    if (at->second.origin == process)
      marks_.erase(at);
    else if (at->second.missing.erase(process) != 0)
      noted.push_back(at->first);
  }
  for (const std::uint64_t mark : noted) finish_if_noted(mark);
}

}  // namespace cox::detail::world
