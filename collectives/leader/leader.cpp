#include <coxswain/collectives/leader/leader.hpp>

#include <coxswain/collectives/leader/leader_cycle.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace cox::detail::world {

Leader::Leader(std::vector<ProcessFacts> processes, LeaderOptions options) : options_(options) {
  processes_.reserve(processes.size());
  for (ProcessFacts& facts : processes) processes_.push_back({.facts = std::move(facts)});
}

Welcome Leader::welcome() const {
  Welcome welcome{.max_ahead = options_.max_ahead};
  for (const Process& each : processes_)
    welcome.processes.push_back(each.is_present ? each.facts : ProcessFacts{.devices = each.facts.devices});
  return welcome;
}

void Leader::take_outgoing(std::vector<Outgoing>& outgoing) {
  outgoing.clear();
  outgoing.swap(outgoing_);
}

Leader::Fault Leader::receive(std::uint16_t process, Message message, Time now) {
  if (!processes_.at(process).is_present) return std::nullopt;
  Fault fault;
  if (auto* const ask = std::get_if<Ask>(&message)) {
    fault = on(process, *ask, now);
  } else if (const auto* const progress = std::get_if<Progress>(&message)) {
    fault = on(process, *progress);
  } else if (auto* const refuse = std::get_if<Refuse>(&message)) {
    fault = on(process, *refuse, now);
  } else if (auto* const open = std::get_if<Open>(&message)) {
    fault = on(process, *open);
  } else if (auto* const breaks = std::get_if<Break>(&message)) {
    fault = on(process, *breaks);
  } else if (auto* const close = std::get_if<Close>(&message)) {
    fault = on(process, *close);
  } else if (auto* const answer = std::get_if<Answer>(&message)) {
    on(process, *answer);
  } else if (auto* const share = std::get_if<Share>(&message)) {
    fault = on(process, *share);
  } else if (auto* const mark = std::get_if<Mark>(&message)) {
    fault = on(process, *mark);
  } else if (const auto* const noted = std::get_if<MarkNoted>(&message)) {
    fault = on(process, *noted);
  } else if (const auto* const check = std::get_if<LinkCheck>(&message)) {
    fault = on(process, *check);
  } else if (const auto* const bye = std::get_if<Bye>(&message)) {
    on(process, *bye);
  } else if (!std::holds_alternative<Heartbeat>(message)) {
    fault =
        fmt::format("it has sent a message of type {}, which only the leader or the link sends", message.index() + 1);
  }
  advance_ready();
  return fault;
}

void Leader::send(std::uint16_t process, Message message) { outgoing_.push_back({process, std::move(message)}); }

// The sequence that the process calls `number`; nullptr if its instance has ended.
Leader::Fault Leader::find_sequence(std::uint16_t process, std::uint64_t number, LeaderSequence*& sequence,
                                    std::size_t& member) {
  const auto& bindings = processes_[process].bindings;
  const auto found = bindings.find(number);
  if (found == bindings.end()) return fmt::format("it has not opened communicator {}", number);
  sequence = sequences_.find(found->second.sequence);
  member = found->second.member;
  return std::nullopt;
}

// Counts an Ask or a Refuse. `counted` is nullptr if the operation is broken.
Leader::Fault Leader::count(LeaderSequence& sequence, std::size_t member, std::uint64_t operation,
                            PendingOperation*& counted, Time now) {
  counted = nullptr;
  SequenceMember& its = sequence.members()[member];
  if (operation != its.asked + 1)
    return fmt::format("it has asked operation {} of communicator {} instead of {}", operation, its.number,
                       its.asked + 1);
  if (operation >= sequence.end()) {
    ++its.asked;
    return std::nullopt;
  }
  if (operation >= sequence.next() + options_.max_asked)
    return fmt::format("it has asked more than {} operations of communicator {} that are not released",
                       options_.max_asked, its.number);
  if (operation >= sequence.first() + 2 * options_.max_asked) {
    const std::uint16_t last = std::ranges::min(sequence.members(), {}, &SequenceMember::asked).process;
    break_instance(sequence.instance(), {.kind = Kind::Aborted,
                                         .process = last,
                                         .text = fmt::format("{} is {} operations behind, all of which are refused",
                                                             name(last), 2 * options_.max_asked)});
    return std::nullopt;
  }
  counted = &sequence.count(member);
  if (counted->asked == 1) {
    counted->process = its.process;
    counted->deadline = now + its.timeout;
  }
  return std::nullopt;
}

// The operations that the ask waits for, which are in other sequences and not resolved.
Leader::Fault Leader::find_awaited(std::uint16_t process, const Ask& ask, const LeaderSequence& sequence,
                                   std::vector<OperationId>& awaited) const {
  const auto& bindings = processes_[process].bindings;
  for (const OperationName& each : ask.awaited) {
    const auto found = bindings.find(each.number);
    if (found == bindings.end()) continue;  // closed
    const LeaderSequence* const other = sequences_.find(found->second.sequence);
    if (other == nullptr) continue;
    // An operation that a break has ended need not have been asked.
    const bool is_asked = each.operation <= other->members()[found->second.member].asked;
    if ((!is_asked && each.operation < other->end()) || each == OperationName{ask.number, ask.operation})
      return fmt::format(
          "operation {} of communicator {} awaits operation {} of communicator {}, which it has not asked",
          ask.operation, ask.number, each.operation, each.number);
    if (other != &sequence && !other->is_resolved(each.operation)) awaited.push_back({other->id(), each.operation});
  }
  return std::nullopt;
}

Leader::Fault Leader::on(std::uint16_t process, Ask& ask, Time now) {
  LeaderSequence* sequence = nullptr;
  std::size_t member = 0;
  PendingOperation* pending = nullptr;
  if (Fault fault = find_sequence(process, ask.number, sequence, member)) return fault;
  if (sequence == nullptr) return std::nullopt;
  if (Fault fault = count(*sequence, member, ask.operation, pending, now)) return fault;
  if (pending == nullptr) return std::nullopt;
  if (pending->refusal) {
    sequence->drop_known();
    end_if_finished(sequence->instance());
    return std::nullopt;
  }
  std::vector<OperationId> awaited;
  if (Fault fault = find_awaited(process, ask, *sequence, awaited)) return fault;
  if (pending->asked == 1) {
    pending->fingerprint = std::move(ask.fingerprint);
    pending->description = std::move(ask.description);
    cut(pending->description, max_description);
  } else if (pending->fingerprint != ask.fingerprint) {
    refuse(*sequence, ask.operation, Kind::Mismatch,
           fmt::format("{}: {} submitted {}, but {} {}", name({sequence->id(), ask.operation}), name(pending->process),
                       pending->description, name(process), ask.description));
    return std::nullopt;
  }
  const OperationId id{sequence->id(), ask.operation};
  if (const auto cycle = find_cycle(sequences_, id, process, awaited); !cycle.empty()) {
    refuse(*sequence, ask.operation, Kind::WouldDeadlock, cycle_text(cycle));
    return std::nullopt;
  }
  for (const OperationId& each : awaited) {
    pending->awaited.push_back({each, process});
    sequences_.find(each.sequence)->note_awaited(each.operation);
  }
  if (ask.operation == sequence->next()) {
    watch(*sequence);
    if (pending->asked == sequence->members().size()) ready_.push_back(sequence->id());
  }
  return std::nullopt;
}

Leader::Fault Leader::on(std::uint16_t process, Refuse& message, Time now) {
  LeaderSequence* sequence = nullptr;
  std::size_t member = 0;
  PendingOperation* pending = nullptr;
  if (Fault fault = find_sequence(process, message.number, sequence, member)) return fault;
  if (sequence == nullptr) return std::nullopt;
  if (Fault fault = count(*sequence, member, message.operation, pending, now)) return fault;
  if (pending == nullptr) return std::nullopt;
  if (!pending->refusal) {
    refuse(*sequence, message.operation, message.kind, name(process) + ": " + message.text);
    return std::nullopt;
  }
  sequence->drop_known();
  end_if_finished(sequence->instance());
  return std::nullopt;
}

Leader::Fault Leader::on(std::uint16_t process, const Progress& message) {
  LeaderSequence* sequence = nullptr;
  std::size_t member = 0;
  if (Fault fault = find_sequence(process, message.number, sequence, member)) return fault;
  if (sequence == nullptr) {
    drop_unfinished(process, message.number, message.completed);
    return std::nullopt;
  }
  const std::uint64_t before = sequence->members()[member].completed;
  // The operations that a break has ended count as completed, too.
  if (message.completed < before || (message.completed >= sequence->next() && sequence->next() != sequence->end()))
    return fmt::format("it has completed {} operations of communicator {} after {}, of {} that are resolved",
                       message.completed, message.number, before, sequence->next() - 1);
  const bool was_full = sequence->in_flight() >= options_.max_ahead;
  sequence->complete(member, message.completed);
  if (was_full && sequence->in_flight() < options_.max_ahead) ready_.push_back(sequence->id());
  return std::nullopt;
}

void Leader::refuse(LeaderSequence& sequence, std::uint64_t operation, Kind kind, std::string text) {
  cut(text, max_text);
  PendingOperation& pending = *sequence.find(operation);
  pending.awaited.clear();
  pending.refusal = {kind, std::move(text)};
  for (const SequenceMember& member : sequence.members())
    if (member.is_open) send(member.process, Refused{member.number, operation, kind, pending.refusal->text});
  if (operation == sequence.next()) ready_.push_back(sequence.id());
}

void Leader::advance_ready() {
  for (std::size_t place = 0; place < ready_.size(); ++place)
    if (LeaderSequence* const sequence = sequences_.find(ready_[place])) advance(*sequence);
  ready_.clear();
}

// Resolves the operations of the sequence that can be resolved. Sequences that wait for them become ready.
void Leader::advance(LeaderSequence& sequence) {
  bool has_advanced = false;
  while (const PendingOperation* const pending = sequence.find_next()) {
    const bool is_released = !pending->refusal;
    if (is_released) {
      if (!may_release(sequence, *pending)) break;
      release_next(sequence);
    }
    sequence.resolve_next(is_released);
    sequence.drop_known();
    has_advanced = true;
  }
  if (!has_advanced) return;
  drop_question(sequence);
  wake_waiters(sequence);
  watch(sequence);
  end_if_finished(sequence.instance());
}

// If the operation waits for another sequence, the sequence becomes one of the waiters there.
bool Leader::may_release(LeaderSequence& sequence, const PendingOperation& pending) {
  if (pending.asked != sequence.members().size() || sequence.in_flight() >= options_.max_ahead) return false;
  if (sequence.held_on && !sequences_.is_resolved(*sequence.held_on)) return false;
  sequence.held_on.reset();
  for (const PendingOperation::Wait& wait : pending.awaited) {
    if (sequences_.is_resolved(wait.operation)) continue;
    sequence.held_on = wait.operation;
    sequences_.find(wait.operation.sequence)->waiters.emplace_back(wait.operation.operation, sequence.id());
    return false;
  }
  return true;
}

void Leader::release_next(LeaderSequence& sequence) {
  ++turns_;
  for (const SequenceMember& member : sequence.members())
    send(member.process, Release{member.number, sequence.next(), turns_});
}

void Leader::wake_waiters(LeaderSequence& sequence) {
  std::erase_if(sequence.waiters, [&](const auto& waiter) {
    if (!sequence.is_resolved(waiter.first)) return false;
    ready_.push_back(waiter.second);
    return true;
  });
}

}  // namespace cox::detail::world
