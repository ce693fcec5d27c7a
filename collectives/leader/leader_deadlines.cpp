#include <coxswain/collectives/leader/leader.hpp>

#include <algorithm>
#include <utility>

namespace cox::detail::world {

void Leader::expire(Time now) {
  const auto has_due_check = [&] { return !checks_.empty() && checks_.begin()->first <= now; };
  const auto has_due_question = [&] { return !questions_.empty() && questions_.begin()->second.end <= now; };
  while (has_due_check() || has_due_question()) {
    if (has_due_question()) {
      conclude(questions_.begin()->first);
    } else {
      LeaderSequence& sequence = *sequences_.find(checks_.begin()->second);
      watch_at(sequence, std::nullopt);
      const PendingOperation* const pending = sequence.find_next();
      if (pending == nullptr || sequence.question != 0) continue;
      if (pending->deadline > now)
        watch(sequence);
      else
        handle_overdue(sequence, now);
    }
    advance_ready();
  }
}

std::optional<Leader::Time> Leader::next_deadline() const {
  std::optional<Time> next;
  if (!checks_.empty()) next = checks_.begin()->first;
  if (!questions_.empty()) next = std::min(next.value_or(Time::max()), questions_.begin()->second.end);
  return next;
}

bool Leader::awaits(std::uint16_t process) const {
  const Process& its = processes_[process];
  if (std::ranges::any_of(marks_, [&](const auto& mark) { return mark.second.missing.contains(process); })) return true;
  const auto is_leaving = [&](std::uint16_t each) { return processes_[each].leaving.has_value(); };
  for (const auto& [member, unfinished] : unfinished_)
    if (member.first == process && std::ranges::any_of(unfinished.completed_by, is_leaving)) return true;
  return std::ranges::any_of(its.instances, [&](InstanceId id) {
    return std::ranges::any_of(instances_.at(id).sequences, [&](const auto& entry) {
      const LeaderSequence& sequence = *sequences_.find(entry.second);
      const std::size_t index = sequence.index_of(process);
      if (index == sequence.members().size()) return false;
      const SequenceMember& member = sequence.members()[index];
      const std::uint64_t resolved = sequence.next() - 1;
      // If all others have completed the operations, none of them waits for this one.
      return sequence.last() > member.asked ||
             (resolved > member.completed && std::ranges::any_of(sequence.members(), [&](const SequenceMember& other) {
                return &other != &member && (resolved > other.completed || processes_[other.process].leaving);
              }));
    });
  });
}

// Schedules a check of the next operation at its deadline. An earlier check remains: it then calls this again, so
// that a sequence whose operations are released in time costs one check in each timeout.
void Leader::watch(LeaderSequence& sequence) {
  const PendingOperation* const pending = sequence.find_next();
  if (pending == nullptr || sequence.question != 0) return;
  if (!sequence.check || *sequence.check > pending->deadline) watch_at(sequence, pending->deadline);
}

void Leader::watch_at(LeaderSequence& sequence, std::optional<Time> time) {
  if (sequence.check) checks_.erase({*sequence.check, sequence.id()});
  if (time) checks_.emplace(*time, sequence.id());
  sequence.check = time;
}

void Leader::drop_question(LeaderSequence& sequence) {
  if (sequence.question != 0) questions_.erase(std::exchange(sequence.question, 0));
}

// Follows the operations that the next operation waits for, up to the one that waits for processes.
Leader::Root Leader::root_of(const LeaderSequence& sequence) const {
  const LeaderSequence* at = &sequence;
  for (;;) {
    const PendingOperation* const pending = at->find_next();
    Root root{{at->id(), at->next()}, {}, false};
    if (pending == nullptr || pending->asked < at->members().size()) {
      for (const SequenceMember& member : at->members())
        if (member.asked < at->next()) root.missing.push_back(member.process);
      return root;
    }
    if (at->in_flight() >= options_.max_ahead) {
      root.operation.operation = at->oldest_in_flight();
      root.is_behind = true;
      for (const SequenceMember& member : at->members())
        if (member.completed < at->oldest_in_flight()) root.missing.push_back(member.process);
      return root;
    }
    if (!at->held_on || sequences_.is_resolved(*at->held_on)) return root;
    at = sequences_.find(at->held_on->sequence);
  }
}

void Leader::handle_overdue(LeaderSequence& sequence, Time now) {
  const Root root = root_of(sequence);
  const LeaderSequence& waits_for = *sequences_.find(root.operation.sequence);
  if (&waits_for != &sequence) {
    // If that one is overdue, too, its break may be what releases this one.
    const PendingOperation* const pending = waits_for.find_next();
    if (waits_for.question != 0 || (pending != nullptr && pending->deadline <= now)) {
      watch_at(sequence, now + options_.answer_time);
      return;
    }
  }
  const Instance& instance = instances_.at(waits_for.instance());
  Question question{{sequence.id(), sequence.next()}, root.operation, now + options_.answer_time, {}};
  sequence.question = ++last_question_;
  for (const std::uint16_t process : root.missing) {
    question.answers.emplace(process, std::nullopt);
    send(process, Why{.question = last_question_,
                      .devices = groups_[instance.group].devices,
                      .epoch = instance.epoch,
                      .direction = waits_for.direction(),
                      .operation = root.operation.operation});
  }
  questions_.emplace(last_question_, std::move(question));
}

void Leader::on(std::uint16_t process, Answer& message) {
  const auto found = questions_.find(message.question);
  if (found == questions_.end()) return;
  auto& answers = found->second.answers;
  const auto answer = answers.find(process);
  if (answer == answers.end()) return;
  cut(message.text, max_text);
  answer->second = std::move(message.text);
  if (std::ranges::all_of(answers, [](const auto& each) { return each.second.has_value(); })) conclude(found->first);
}

// Breaks the instance of the overdue operation, unless the processes that were asked are no longer those that miss.
void Leader::conclude(std::uint64_t number) {
  const Question question = std::move(questions_.at(number));
  questions_.erase(number);
  LeaderSequence& sequence = *sequences_.find(question.about.sequence);
  sequence.question = 0;
  Root root = root_of(sequence);
  std::erase_if(root.missing, [&](std::uint16_t process) { return !question.answers.contains(process); });
  if (root.missing.empty()) {
    watch(sequence);
    return;
  }
  break_instance(sequence.instance(), {.kind = Kind::Timeout,
                                       .process = root.missing.size() == 1 ? root.missing.front() : no_process,
                                       .text = overdue_text(question, root)});
}

}  // namespace cox::detail::world
