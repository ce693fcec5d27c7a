#include <coxswain/servers/cuda/collective/cuda_communicators.hpp>

#include <coxswain/collectives/group/communication_groups.hpp>
#include <coxswain/device_handle/base/task_error.hpp>
#include <coxswain/runtime/communication/collective_error.hpp>
#include <coxswain/servers/cuda/collective/communication_stream.hpp>
#include <coxswain/servers/cuda/copy/peer_copy.hpp>
#include <coxswain/servers/cuda/peer/launch_gate.hpp>

#include <algorithm>
#include <array>
#include <limits>
#include <thread>
#include <utility>

namespace cox::detail {
namespace {

Sequencer& sequencer() { return CommunicationGroups::of_process().sequencer(); }

}  // namespace

CudaCommunicator& CudaCommunicators::find_or_create(const std::shared_ptr<CommunicationGroup>& group,
                                                    const CollectiveRequest& request) {
  if (!is_transfer(request.operation))
    if (const auto found = communicators_.find(group->number()); found != communicators_.end()) return *found->second;
  CommunicationGroup::Ranks ranks = group->ranks_of(device_, request);
  if (const auto found = communicators_.find(ranks.number); found != communicators_.end()) return *found->second;
  reap();
  const std::shared_ptr<const CudaCommunication> on = communication();
  const StreamSlot slot = streams_.acquire_slot();
  try {
    const auto index = static_cast<std::size_t>(slot);
    if (by_slot_.size() <= index) by_slot_.resize(index + 1);
    auto made = std::make_unique<CudaCommunicator>(group, ranks.number, std::move(ranks.devices), device_, slot, on);
    CudaCommunicator& kept = *communicators_.emplace(ranks.number, std::move(made)).first->second;
    by_slot_[index] = &kept;
    return kept;
  } catch (...) {
    streams_.release_slot(slot);
    throw;
  }
}

// Calls `visit(collective)` for each collective that the work at `position` waits for. Collectives on the slot itself
// are left out: they precede the work in any case.
template <class Visit>
void CudaCommunicators::note_each(const StreamPosition& position, const StreamPositions& waits, Visit&& visit) {
  const auto index = static_cast<std::size_t>(position.stream);
  if (awaited_.size() <= index) awaited_.resize(index + 1);
  const auto add = [&](const StreamPosition& collective) {
    if (collective.stream == position.stream) return;
    awaited_[index].add(position.position, collective, streams_);
    visit(collective);
  };
  for (const StreamPosition& wait : waits) {
    if (wait.stream == position.stream) continue;
    if (communicator_at(wait.stream) != nullptr) add(wait);
    const auto other = static_cast<std::size_t>(wait.stream);
    if (other < awaited_.size()) awaited_[other].for_each_until(wait.position, streams_, add);
  }
}

void CudaCommunicators::note(const StreamPosition& position, const StreamPositions& waits) {
  note_each(position, waits, [](const StreamPosition&) {});
}

CollectiveDependencies CudaCommunicators::note_collective(const StreamPosition& position,
                                                          const StreamPositions& waits) {
  CollectiveDependencies dependencies;
  note_each(position, waits, [&](const StreamPosition& collective) {
    if (const CudaCommunicator* const communicator = communicator_at(collective.stream))
      dependencies.push_back(communicator->operation_at(collective.position));
  });
  return dependencies;
}

StreamPositions CudaCommunicators::last_positions() const {
  StreamPositions positions;
  for (const auto& [number, communicator] : communicators_) {
    const StreamPosition last = communicator->last_position();
    if (streams_.completed(last.stream) < last.position) positions.push_back(last);
  }
  return positions;
}

bool CudaCommunicators::all_issued() const noexcept {
  return std::ranges::all_of(communicators_, [](const auto& entry) { return entry.second->issued(); });
}

bool CudaCommunicators::copies_in_flight() const noexcept {
  return std::ranges::any_of(communicators_, [this](const auto& entry) {
    const StreamPosition last = entry.second->last_position();
    return entry.second->clique() == nullptr && streams_.completed(last.stream) < last.position;
  });
}

void CudaCommunicators::leave(std::uint64_t generation, const std::function<void()>& poll) noexcept {
  std::exception_ptr cause;
  try {
    cause = std::make_exception_ptr(
        CollectiveError(CollectiveError::Kind::Aborted, device_.to_string() + " was shut down"));
    const auto has_unsubmitted = [](const auto& entry) { return entry.second->has_unsubmitted(); };
    const auto asked_by = std::chrono::steady_clock::now() + patience_with_nccl;
    while (std::ranges::any_of(communicators_, has_unsubmitted) && std::chrono::steady_clock::now() < asked_by) {
      poll();
      std::this_thread::yield();
    }
    const auto groups = CommunicationGroups::of_process().leave(device_, generation);
    const auto deadline = std::chrono::steady_clock::now() + patience;
    while (!all_issued() && std::chrono::steady_clock::now() < deadline) {
      poll();
      std::this_thread::yield();
    }
    for (const auto& group : groups) group->close(cause);
  } catch (...) {
    // Usually no memory: abort without waiting for the other ranks. But nothing may be in flight when the streams are
    // destroyed.
    cause = std::current_exception();
    report_task_error({device_, StreamId::current(), cause});
  }
  for (const auto& [number, communicator] : communicators_)
    communicator->refuse_unsubmitted(communicator->abort(cause));
  while (!all_issued()) {
    poll();
    std::this_thread::yield();
  }
  if (communication_ == nullptr) return;
  sequencer().set_launch_thread(device_, {});
  posts_->run_calls();  // a coalesced call may be pending: it has no launches to drain, but leaves the gate
}

const std::shared_ptr<const CudaCommunication>& CudaCommunicators::communication() {
  if (communication_ != nullptr) return communication_;
  if (transfers_ == nullptr) transfers_ = streams_.create_dedicated_stream();
  if (copies_ == nullptr) copies_ = streams_.create_dedicated_stream();
  auto made = std::make_shared<const CudaCommunication>(
      CudaCommunication{streams_, posts_, transfers_, std::make_shared<PeerCopyStream>(copies_),
                        std::make_shared<CommunicationStream>(streams_), std::make_shared<CompletionOrder>()});
  // The gate counts a device from its notification until it has drained its launches. The notifying thread is still
  // counted by the gate itself at that time, so the gate is never quiescent between the release and the launch.
  posts_->set_coalesced([device = device_] {
    sequencer().drain_launches(device);
    LaunchGate::of_process().remove_launch();
  });
  sequencer().set_launch_thread(device_, [posts = posts_] {
    LaunchGate::of_process().add_launch();
    posts->post_coalesced();
  });
  communication_ = std::move(made);
  return communication_;
}

void CudaCommunicators::close() noexcept {
  for (const auto& [number, communicator] : communicators_) {
    if (communicator->clique() == nullptr) continue;
    communicator->clique()->close();
    old_cliques_.push_back(communicator->clique());
  }
  const auto deadline = std::chrono::steady_clock::now() + patience_with_nccl;
  for (const auto& clique : old_cliques_) {
    if (clique->wait_until_destroyed(deadline)) continue;
    report_task_error({device_, StreamId::current(),
                       std::make_exception_ptr(CollectiveError(
                           CollectiveError::Kind::Backend, "NCCL does not let go of a communicator with " +
                                                               device_.to_string() + ", which is being shut down"))});
  }
}

void CudaCommunicators::reap() {
  std::erase_if(old_cliques_, [](const auto& clique) { return clique->wait_until_destroyed({}); });
  old_cliques_.reserve(old_cliques_.size() + communicators_.size());
  std::erase_if(communicators_, [this](const auto& entry) {
    const StreamSlot slot = entry.second->last_position().stream;
    streams_.timeline(slot).poll();
    if (!entry.second->is_finished()) return false;
    if (const auto& clique = entry.second->clique()) {
      clique->close();
      old_cliques_.push_back(clique);
    }
    by_slot_[static_cast<std::size_t>(slot)] = nullptr;
    streams_.release_slot(slot);
    return true;
  });
}

}  // namespace cox::detail
