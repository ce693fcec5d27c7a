#include <coxswain/servers/host/detail/host_streams.hpp>

#include <algorithm>
#include <utility>

namespace cox::detail {

HostStream& HostStreams::of(StreamId id) {
  if (const auto found = streams_.find(id); found != streams_.end()) return *found->second;
  if (streams_.size() >= sweep_at_) forget_idle();
  const TakenSlot taken = take_slot();
  std::shared_ptr<HostStream> made;
  try {
    made = std::make_shared<HostStream>(Place{device_, id}, threads_, taken.slot, taken.timeline);
    streams_.emplace(id, made);
  } catch (...) {
    give_back(taken.slot);
    throw;
  }
  slots_[static_cast<std::size_t>(taken.slot)].stream = made.get();
  return *made;
}

HostStreams::TakenSlot HostStreams::take_slot() {
  if (free_slots_.empty()) {
    free_slots_.reserve(slots_.size() + 1);
    slots_.push_back({.timeline = std::make_shared<Timeline>()});
    free_slots_.push_back(static_cast<StreamSlot>(slots_.size() - 1));
  }
  const StreamSlot slot = free_slots_.back();
  free_slots_.pop_back();
  return {slot, slots_[static_cast<std::size_t>(slot)].timeline};
}

void HostStreams::note_waits(AwaitedCollectives& awaited, std::uint64_t from, const StreamPositions& waits) const {
  for (const StreamPosition& wait : waits) {
    if (const HostStream* const other = at(wait.stream)) {
      other->awaited.each_until(wait.position, *this,
                                [&](const StreamPosition& collective) { awaited.add(from, collective, *this); });
    } else {
      awaited.add(from, wait, *this);
    }
  }
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
