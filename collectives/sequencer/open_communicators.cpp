#include <coxswain/collectives/sequencer/open_communicators.hpp>

#include <algorithm>
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
    if (std::ranges::binary_search(communicator->devices().devices(), device)) numbers.push_back(number);
  return numbers;
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

void OpenCommunicators::resolve_ready(CommunicatorSequence& changed, CollectiveSubmissions& grants) noexcept {
  resolve_ready_on(changed, grants);
  // Resolving operations of one communicator can release held operations of others. Repeat until none can be released.
  const auto free = [this](const CommunicatorSequence* held) { return !hold(*held->oldest()); };
  for (auto next = std::ranges::find_if(held_, free); next != held_.end(); next = std::ranges::find_if(held_, free))
    resolve_ready_on(**next, grants);
}

void OpenCommunicators::resolve_ready_on(CommunicatorSequence& communicator, CollectiveSubmissions& grants) noexcept {
  std::erase(held_, &communicator);
  while (const WaitingOperation* oldest = communicator.oldest()) {
    const bool refused = oldest->grant.refusal != nullptr;
    if (!refused && !communicator.complete(*oldest)) return;
    if (!refused && hold(*oldest)) return held_.push_back(&communicator);
    communicator.resolve_oldest(refused ? 0 : ++order_, grants);
  }
}

std::unique_ptr<CommunicatorSequence> OpenCommunicators::extract(CommunicatorNumber number) noexcept {
  return std::move(communicators_.extract(number).mapped());
}

std::optional<CollectiveId> OpenCommunicators::overdue(Time now) const noexcept {
  const auto is_overdue = [now](const CommunicatorSequence* communicator) {
    return communicator != nullptr && communicator->oldest() != nullptr && communicator->oldest()->deadline <= now;
  };
  for (const auto& [number, communicator] : communicators_) {
    if (!is_overdue(communicator.get())) continue;
    const CommunicatorSequence* first = communicator.get();
    while (const auto held = hold(*first->oldest())) {  // terminates: wait cycles are refused
      const CommunicatorSequence* waited_for = find(held->dependency.communicator);
      if (!is_overdue(waited_for)) break;
      first = waited_for;
    }
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
    if (const WaitingOperation* oldest = communicator->oldest())
      next = std::min(next.value_or(oldest->deadline), oldest->deadline);
  return next;
}

}  // namespace cox::detail
