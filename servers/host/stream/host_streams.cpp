#include <coxswain/servers/host/stream/host_streams.hpp>

#include <algorithm>
#include <limits>
#include <utility>

namespace cox::detail {

HostStream& HostStreams::find_or_create(StreamId id) {
  if (const auto found = streams_.find(id); found != streams_.end()) return *found->second;
  if (streams_.size() >= sweep_at_) forget_idle();
  const TakenSlot taken = acquire_slot();
  std::shared_ptr<HostStream> made;
  try {
    made = std::make_shared<HostStream>(Location{device_, id}, threads_, taken.slot, taken.timeline);
    streams_.emplace(id, made);
  } catch (...) {
    release_slot(taken.slot);
    throw;
  }
  slots_[static_cast<std::size_t>(taken.slot)].stream = made.get();
  return *made;
}

HostStreams::TakenSlot HostStreams::acquire_slot() {
  if (free_slots_.empty()) {
    free_slots_.reserve(slots_.size() + 1);
    slots_.push_back({.timeline = std::make_shared<Timeline>(), .stream = nullptr, .awaited = {}});
    free_slots_.push_back(static_cast<StreamSlot>(slots_.size() - 1));
  }
  const StreamSlot slot = free_slots_.back();
  free_slots_.pop_back();
  return {slot, slots_[static_cast<std::size_t>(slot)].timeline};
}

void HostStreams::note_waits(CollectiveDependencyTracker& awaited, std::uint64_t from,
                             const StreamPositions& waits) const {
  const auto add = [&](const StreamPosition& collective) { awaited.add(from, collective, *this); };
  for (const StreamPosition& wait : waits) {
    const Slot& slot = slots_[static_cast<std::size_t>(wait.stream)];
    if (slot.stream == nullptr) add(wait);
    const CollectiveDependencyTracker& its = slot.stream != nullptr ? slot.stream->awaited : slot.awaited;
    its.for_each_until(wait.position, *this, add);
  }
}

void HostStreams::note_collective(const StreamPosition& end, const CollectiveDependencyTracker& awaited) {
  CollectiveDependencyTracker& its = slots_[static_cast<std::size_t>(end.stream)].awaited;
  awaited.for_each_until(std::numeric_limits<std::uint64_t>::max(), *this, [&](const StreamPosition& collective) {
    if (collective.stream != end.stream) its.add(end.position, collective, *this);
  });
}

HostEvents HostStreams::events(const StreamPositions& positions) const {
  HostEvents events;
  events.reserve(positions.size());
  for (const StreamPosition& position : positions)
    events.push_back({slots_[static_cast<std::size_t>(position.stream)].timeline, position.position});
  return events;
}

void HostStreams::forget_idle() {
  std::erase_if(streams_, [this](const auto& entry) {
    if (!entry.second->idle()) return false;
    slots_[static_cast<std::size_t>(entry.second->slot())].stream = nullptr;
    free_slots_.push_back(entry.second->slot());
    return true;
  });
  sweep_at_ = std::max<std::size_t>(1024, 2 * streams_.size());  // so that sweeping costs O(1) a stream
}

}  // namespace cox::detail
