#include <coxswain/servers/host/detail/host_streams.hpp>

#include <algorithm>
#include <utility>

namespace cox::detail {

HostStream& HostStreams::of(StreamId id) {
  if (const auto found = streams_.find(id); found != streams_.end()) return *found->second;
  if (streams_.size() >= sweep_at_) forget_idle();
  if (free_slots_.empty()) {
    free_slots_.reserve(timelines_.size() + 1);
    timelines_.push_back(std::make_shared<Timeline>());
    free_slots_.push_back(static_cast<StreamSlot>(timelines_.size() - 1));
  }
  const StreamSlot slot = free_slots_.back();
  auto made =
      std::make_shared<HostStream>(Place{device_, id}, threads_, slot, timelines_[static_cast<std::size_t>(slot)]);
  HostStream& stream = *streams_.emplace(id, std::move(made)).first->second;
  free_slots_.pop_back();
  return stream;
}

HostEvents HostStreams::events(const StreamPositions& positions) const {
  HostEvents events;
  events.reserve(positions.size());
  for (const StreamPosition& position : positions)
    events.push_back({timelines_[static_cast<std::size_t>(position.stream)], position.position});
  return events;
}

void HostStreams::forget_idle() {
  std::erase_if(streams_, [this](const auto& entry) {
    if (!entry.second->idle()) return false;
    free_slots_.push_back(entry.second->slot());
    return true;
  });
  sweep_at_ = std::max<std::size_t>(1024, 2 * streams_.size());  // so that sweeping costs O(1) a stream
}

}  // namespace cox::detail
