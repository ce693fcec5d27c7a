#include <coxswain/collectives/sequencer/open_communicators.hpp>

#include <algorithm>
#include <exception>
#include <new>
#include <utility>

namespace cox::detail {

void OpenCommunicators::insert(std::unique_ptr<CommunicatorSequence> communicator) {
  held_.reserve(communicators_.size() + 1);  // so that accepting a submission does not allocate
  const CommunicatorNumber number = communicator->number();
  communicators_.emplace(number, std::move(communicator));
}

CommunicatorSequence* OpenCommunicators::find(CommunicatorNumber number) const noexcept {
  const auto found = communicators_.find(number);
  return found == communicators_.end() ? nullptr : found->second.get();
}

const CommunicatorSequence* OpenCommunicators::any_open() const noexcept {
  return communicators_.empty() ? nullptr : communicators_.begin()->second.get();
}

std::vector<CommunicatorNumber> OpenCommunicators::find_with_device(DeviceId device) const {
  std::vector<CommunicatorNumber> numbers;
  for (const auto& [number, communicator] : communicators_)
    if (communicator->rank_of_own(device)) numbers.push_back(number);
  return numbers;
}

std::vector<CommunicatorNumber> OpenCommunicators::find_shared(const SharedCommunicator& communicator) const {
  std::vector<CommunicatorNumber> numbers;
  for (const auto& [number, open] : communicators_)
    if (open->shared() != nullptr && open->shared()->communicator == communicator) numbers.push_back(number);
  return numbers;
}

const CommunicatorSequence* OpenCommunicators::next_shared(CommunicatorNumber after) const noexcept {
  for (auto next = communicators_.upper_bound(after); next != communicators_.end(); ++next)
    if (next->second->shared() != nullptr) return next->second.get();
  return nullptr;
}

bool OpenCommunicators::is_resolved(const CollectiveId& dependency) const noexcept {
  const CommunicatorSequence* communicator = find(dependency.communicator);
  return communicator == nullptr || communicator->is_resolved(dependency.sequence);
}

std::optional<OpenCommunicators::Hold> OpenCommunicators::hold(const WaitingOperation& operation) const noexcept {
  for (const CollectiveSubmission& submission : operation.arrived)
    for (const CollectiveId& dependency : submission.dependencies)
      if (!is_resolved(dependency)) return Hold{&submission, dependency};
  return std::nullopt;
}

void OpenCommunicators::record_dependencies(const CollectiveSubmission& submission) noexcept {
  for (const CollectiveId& dependency : submission.dependencies)
    if (CommunicatorSequence* communicator = find(dependency.communicator))
      communicator->note_awaited(dependency.sequence);
}

void OpenCommunicators::resolve_ready(CommunicatorSequence& changed, CollectiveSubmissions& grants,
                                      Releases releases) noexcept {
  resolve_ready_on(changed, grants, releases != Releases::None);
  if (releases == Releases::All) resolve_held(grants);
}

// Resolving operations of one communicator can release held operations of others. Repeats until none can be released.
void OpenCommunicators::resolve_held(CollectiveSubmissions& grants) noexcept {
  const auto free = [this](const CommunicatorSequence* held) { return !holds_back(*held); };
  for (auto next = std::ranges::find_if(held_, free); next != held_.end(); next = std::ranges::find_if(held_, free))
    resolve_ready_on(**next, grants, true);
}

// Releases or refuses the communicator's oldest operations, in their order, as long as all its ranks in this process
// have submitted them and nothing holds them back. Those of a shared sequence are released only after the leader has
// released them (is_released).
void OpenCommunicators::resolve_ready_on(CommunicatorSequence& communicator, CollectiveSubmissions& grants,
                                         bool may_release) noexcept {
  std::erase(held_, &communicator);
  if (communicator.shared() != nullptr) ask_ready(communicator);
  while (const WaitingOperation* oldest = communicator.oldest()) {
    const bool refused = oldest->grant.refusal != nullptr;
    if (!refused && communicator.shared() != nullptr && !oldest->is_released) return;
    if (!refused && !communicator.complete(*oldest)) return;
    if (!refused && communicator.shared() == nullptr && (!may_release || hold(*oldest)))
      return held_.push_back(&communicator);
    communicator.resolve_oldest(refused ? 0 : ++order_, grants);
  }
}

// Tells the leader of all operations of a shared sequence that have all their ranks, or are refused, in order. Does not
// wait for the answers.
void OpenCommunicators::ask_ready(CommunicatorSequence& communicator) noexcept {
  for (;;) {
    const std::uint64_t sequence = communicator.next_to_ask();
    const WaitingOperation* const next = communicator.waiting(sequence);
    if (next == nullptr) return;
    if (next->grant.refusal != nullptr) {
      if (leader_ != nullptr) leader_->refuse({communicator.number(), sequence}, next->grant.refusal);
    } else {
      if (leader_ == nullptr || !communicator.complete(*next)) return;
      if (hold_of_ask(*next)) return held_.push_back(&communicator);
      try {
        leader_->ask({communicator.number(), sequence}, next->arrived.front().requests, awaited_by(*next));
      } catch (const std::bad_alloc&) {
        communicator.refuse_from(sequence, std::current_exception());
        leader_->end({communicator.number(), sequence}, std::current_exception());
        return;
      }
    }
    communicator.note_asked(sequence);
  }
}

// Of the operations that it waits for, those that are not resolved: they have been asked for.
CollectiveDependencies OpenCommunicators::awaited_by(const WaitingOperation& operation) const {
  CollectiveDependencies awaited;
  for (const CollectiveSubmission& submission : operation.arrived)
    for (const CollectiveId& dependency : submission.dependencies)
      if (!is_resolved(dependency) && std::ranges::find(awaited, dependency) == awaited.end())
        awaited.push_back(dependency);
  return awaited;
}

bool OpenCommunicators::holds_back(const CommunicatorSequence& communicator) const noexcept {
  if (communicator.shared() == nullptr) return hold(*communicator.oldest()).has_value();
  const WaitingOperation* const next = communicator.waiting(communicator.next_to_ask());
  return next == nullptr || hold_of_ask(*next).has_value();
}

// Operations that the leader was asked for do not hold back others that are asked for after them: it releases them in
// order.
std::optional<OpenCommunicators::Hold> OpenCommunicators::hold_of_ask(
    const WaitingOperation& operation) const noexcept {
  for (const CollectiveSubmission& submission : operation.arrived)
    for (const CollectiveId& dependency : submission.dependencies)
      if (!is_resolved(dependency) && !has_been_asked(dependency)) return Hold{&submission, dependency};
  return std::nullopt;
}

bool OpenCommunicators::has_been_asked(const CollectiveId& dependency) const noexcept {
  const CommunicatorSequence* const communicator = find(dependency.communicator);
  return communicator != nullptr && communicator->shared() != nullptr && communicator->is_asked(dependency.sequence);
}

std::unique_ptr<CommunicatorSequence> OpenCommunicators::extract(CommunicatorNumber number) noexcept {
  return std::move(communicators_.extract(number).mapped());
}

// The leader of the world knows which operations are overdue of those that it was asked for.
bool OpenCommunicators::has_own_deadline(const CommunicatorSequence& communicator) noexcept {
  return communicator.oldest() != nullptr && !communicator.is_asked(communicator.oldest_sequence());
}

std::optional<CollectiveId> OpenCommunicators::overdue(Time now) const noexcept {
  const auto is_overdue = [now](const CommunicatorSequence* communicator) {
    return communicator != nullptr && has_own_deadline(*communicator) && communicator->oldest()->deadline <= now;
  };
  for (const auto& [number, communicator] : communicators_) {
    if (!is_overdue(communicator.get())) continue;
    const CommunicatorSequence* first = communicator.get();
    bool waits_for_leader = false;
    while (const auto held = hold(*first->oldest())) {  // terminates: wait cycles are refused
      const CommunicatorSequence* waited_for = find(held->dependency.communicator);
      // It was asked for that operation, or for an earlier one of the communicator, which is resolved first.
      waits_for_leader = waited_for != nullptr && waited_for->oldest() != nullptr && !has_own_deadline(*waited_for);
      if (waits_for_leader || !is_overdue(waited_for)) break;
      first = waited_for;
    }
    if (waits_for_leader) continue;  // the leader will find that one overdue
    return CollectiveId{first->number(), first->oldest_sequence()};
  }
  return std::nullopt;
}

void OpenCommunicators::postpone(Time::duration by) noexcept {
  for (const auto& [number, communicator] : communicators_) communicator->postpone(by);
}

std::optional<OpenCommunicators::Time> OpenCommunicators::next_deadline() const noexcept {
  std::optional<Time> next;
  for (const auto& [number, communicator] : communicators_)
    if (has_own_deadline(*communicator))
      next = std::min(next.value_or(communicator->oldest()->deadline), communicator->oldest()->deadline);
  return next;
}

}  // namespace cox::detail
