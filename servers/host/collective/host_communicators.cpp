#include <coxswain/servers/host/collective/host_communicators.hpp>

#include <coxswain/collectives/group/communication_groups.hpp>
#include <coxswain/collectives/watch/deadline_watch.hpp>
#include <coxswain/device_handle/base/task_error.hpp>
#include <coxswain/runtime/communication/collective_error.hpp>
#include <coxswain/servers/host/collective/host_meeting.hpp>

#include <array>
#include <exception>
#include <limits>
#include <utility>
#include <vector>

namespace cox::detail {

HostCommunicator& HostCommunicators::find_or_create(const std::shared_ptr<CommunicationGroup>& group,
                                                    const CollectiveRequest& request) {
  CommunicationGroup::Ranks ranks = group->ranks_of(device_, request);
  if (const auto found = communicators_.find(ranks.number); found != communicators_.end()) return *found->second;
  reap();
  std::shared_ptr<const HostStreamList> streams = communication();
  const HostStreams::TakenSlot slot = streams_.acquire_slot();
  try {
    auto made = std::make_unique<HostCommunicator>(group, ranks.number, std::move(ranks.devices), device_, slot,
                                                   std::move(streams));
    return *communicators_.emplace(ranks.number, std::move(made)).first->second;
  } catch (...) {
    streams_.release_slot(slot.slot);
    throw;
  }
}

CollectiveDependencies HostCommunicators::dependencies(const CollectiveDependencyTracker& awaited) const {
  CollectiveDependencies dependencies;
  awaited.for_each_until(std::numeric_limits<std::uint64_t>::max(), streams_, [&](const StreamPosition& collective) {
    for (const auto& [number, communicator] : communicators_)
      if (communicator->last_position().stream == collective.stream)
        dependencies.push_back(communicator->operation_at(collective.position));
  });
  return dependencies;
}

StreamPositions HostCommunicators::last_positions() const {
  StreamPositions positions;
  for (const auto& [number, communicator] : communicators_) {
    const StreamPosition last = communicator->last_position();
    if (streams_.completed(last.stream) < last.position) positions.push_back(last);
  }
  return positions;
}

void HostCommunicators::leave(std::uint64_t generation) noexcept {
  std::exception_ptr cause;
  try {
    cause = std::make_exception_ptr(
        CollectiveError(CollectiveError::Kind::Aborted, device_.to_string() + " was shut down"));
    const auto groups = CommunicationGroups::of_process().leave(device_, generation);
    const auto deadline = std::chrono::steady_clock::now() + patience;
    for (const auto& [number, communicator] : communicators_)
      if (!communicator->wait_until(deadline)) break;
    for (const auto& group : groups) group->close(cause);
  } catch (...) {
    // Out of memory: skip the grace period. No operation may be in flight when the streams are destroyed, so abort them
    // all.
    cause = std::current_exception();
    report_task_error({device_, StreamId::current(), cause});
  }
  for (const auto& [number, communicator] : communicators_) {
    static_cast<void>(communicator->abort(cause));
    communicator->wait();
  }
  if (!communicators_.empty()) DeadlineWatch<HostMeeting>::of_process().recheck();
}

// No access to a buffer is recorded with these streams, so they need no slots.
const std::shared_ptr<const HostStreamList>& HostCommunicators::communication() {
  if (communication_ == nullptr) {
    HostStreamList streams;
    for (std::size_t i = 0; i < thread_count_; ++i)
      streams.push_back(std::make_shared<HostStream>(Location{device_, StreamId::allocate()}, threads_, no_stream,
                                                     std::make_shared<Timeline>()));
    communication_ = std::make_shared<const HostStreamList>(std::move(streams));
  }
  return communication_;
}

void HostCommunicators::reap() {
  std::erase_if(communicators_, [this](const auto& entry) {
    if (!entry.second->is_finished()) return false;
    streams_.release_slot(entry.second->last_position().stream);
    return true;
  });
}

}  // namespace cox::detail
