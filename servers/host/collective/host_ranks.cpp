#include <coxswain/servers/host/collective/host_ranks.hpp>

#include <coxswain/collectives/communicator/communicators.hpp>
#include <coxswain/collectives/watch/deadline_watch.hpp>
#include <coxswain/device_handle/base/task_error.hpp>
#include <coxswain/runtime/communication/collective_error.hpp>
#include <coxswain/servers/host/collective/host_operation.hpp>

#include <exception>
#include <limits>
#include <source_location>
#include <utility>
#include <vector>

namespace cox::detail {

HostRank& HostRanks::find_or_create(const std::shared_ptr<Communicator>& communicator,
                                    const CollectiveRequest& request) {
  Communicator::Ranks ranks = communicator->ranks_of(device_, request);
  if (const auto found = ranks_.find(ranks.number); found != ranks_.end()) return *found->second;
  reap();
  const HostStreams::TakenSlot slot = streams_.acquire_slot();
  try {
    auto made = std::make_shared<HostRank>(communicator, ranks.number, std::move(ranks.devices), device_, slot,
                                           communication_streams());
    return *ranks_.emplace(ranks.number, std::move(made)).first->second;
  } catch (...) {
    streams_.release_slot(slot.slot);
    throw;
  }
}

CollectiveDependencies HostRanks::dependencies(const CollectiveDependencyTracker& awaited) const {
  CollectiveDependencies dependencies;
  awaited.for_each_until(std::numeric_limits<std::uint64_t>::max(), streams_, [&](const StreamPosition& collective) {
    for (const auto& [number, rank] : ranks_)
      if (rank->last_position().stream == collective.stream)
        dependencies.push_back(rank->operation_at(collective.position));
  });
  return dependencies;
}

StreamPositions HostRanks::last_positions() const {
  StreamPositions positions;
  for (const auto& [number, rank] : ranks_) {
    const StreamPosition last = rank->last_position();
    if (streams_.completed(last.stream) < last.position) positions.push_back(last);
  }
  return positions;
}

void HostRanks::leave(std::uint64_t generation) noexcept {
  std::exception_ptr cause;
  try {
    cause = std::make_exception_ptr(CollectiveError(CollectiveError::Kind::Aborted,
                                                    device_.to_string() + " was shut down", std::source_location()));
    const auto communicators = Communicators::of_process().leave(device_, generation);
    const auto deadline = std::chrono::steady_clock::now() + patience;
    for (const auto& [number, rank] : ranks_)
      if (!rank->wait_until(deadline)) break;
    for (const auto& communicator : communicators) communicator->close(cause);
  } catch (...) {
    // Out of memory: skip the grace period. No operation may be in flight when the streams are destroyed, so abort them
    // all.
    cause = std::current_exception();
    report_task_error({device_, StreamId::current(), cause});
  }
  for (const auto& [number, rank] : ranks_) {
    static_cast<void>(rank->abort(cause));
    rank->wait();
  }
  if (!ranks_.empty()) DeadlineWatch<HostOperation>::of_process().recheck();
  if (communication_streams_ == nullptr) return;
  for (const auto& stream : *communication_streams_) stream->drain();  // another device may still have to schedule them
}

// No access to a buffer is recorded with these streams, so they need no slots.
const std::shared_ptr<const HostStreamList>& HostRanks::communication_streams() {
  if (communication_streams_ == nullptr) {
    HostStreamList streams;
    for (std::size_t i = 0; i < thread_count_; ++i)
      streams.push_back(std::make_shared<HostStream>(Location{device_, StreamId::allocate()}, threads_, no_stream,
                                                     std::make_shared<Timeline>()));
    communication_streams_ = std::make_shared<const HostStreamList>(std::move(streams));
  }
  return communication_streams_;
}

void HostRanks::reap() {
  std::erase_if(ranks_, [this](const auto& entry) {
    if (!entry.second->is_finished()) return false;
    streams_.release_slot(entry.second->last_position().stream);
    return true;
  });
}

}  // namespace cox::detail
