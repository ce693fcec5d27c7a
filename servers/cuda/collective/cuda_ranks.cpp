#include <coxswain/servers/cuda/collective/cuda_ranks.hpp>

#include <coxswain/collectives/communicator/communicators.hpp>
#include <coxswain/device_handle/base/task_error.hpp>
#include <coxswain/runtime/communication/collective_error.hpp>
#include <coxswain/runtime/communication/world_process.hpp>
#include <coxswain/servers/cuda/collective/communication_stream.hpp>
#include <coxswain/servers/cuda/collective/stream_hold.hpp>
#include <coxswain/servers/cuda/copy/peer_copy.hpp>
#include <coxswain/servers/cuda/peer/launch_gate.hpp>

#include <algorithm>
#include <limits>
#include <source_location>
#include <thread>
#include <utility>

namespace cox::detail {
namespace {

Sequencer& sequencer() { return Communicators::of_process().sequencer(); }

}  // namespace

CudaRanks::~CudaRanks() {
  for (const auto& [number, rank] : ranks_) rank->close();
}

CudaRank& CudaRanks::find_or_create(const std::shared_ptr<Communicator>& communicator,
                                    const CollectiveRequest& request) {
  if (!is_transfer(request.operation))
    if (const auto found = ranks_.find(communicator->number()); found != ranks_.end()) return *found->second;
  Communicator::Ranks ranks = communicator->ranks_of(device_, request);
  if (const auto found = ranks_.find(ranks.number); found != ranks_.end()) return *found->second;
  reap();
  const std::shared_ptr<const CollectiveResources> on = resources();
  // The process may have used its own devices before it joined the world.
  if (hold_ == nullptr && own_process() != 0) hold_ = std::make_shared<StreamHold>(CudaContext::open(device_.index));
  const StreamSlot slot = streams_.acquire_slot();
  try {
    const auto index = static_cast<std::size_t>(slot);
    if (by_slot_.size() <= index) by_slot_.resize(index + 1);
    auto made =
        std::make_shared<CudaRank>(communicator, ranks.number, std::move(ranks.devices), device_, slot, on, hold_);
    CudaRank& kept = *ranks_.emplace(ranks.number, std::move(made)).first->second;
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
void CudaRanks::note_each(const StreamPosition& position, const StreamPositions& waits, Visit&& visit) {
  const auto index = static_cast<std::size_t>(position.stream);
  if (awaited_.size() <= index) awaited_.resize(index + 1);
  const auto add = [&](const StreamPosition& collective) {
    if (collective.stream == position.stream) return;
    awaited_[index].add(position.position, collective, streams_);
    visit(collective);
  };
  for (const StreamPosition& wait : waits) {
    if (wait.stream == position.stream) continue;
    if (rank_at(wait.stream) != nullptr) add(wait);
    const auto other = static_cast<std::size_t>(wait.stream);
    if (other < awaited_.size()) awaited_[other].for_each_until(wait.position, streams_, add);
  }
}

void CudaRanks::note(const StreamPosition& position, const StreamPositions& waits) {
  note_each(position, waits, [](const StreamPosition&) {});
}

CollectiveDependencies CudaRanks::note_collective(const StreamPosition& position, const StreamPositions& waits) {
  CollectiveDependencies dependencies;
  note_each(position, waits, [&](const StreamPosition& collective) {
    if (const CudaRank* const rank = rank_at(collective.stream))
      dependencies.push_back(rank->operation_at(collective.position));
  });
  return dependencies;
}

StreamPositions CudaRanks::last_positions() const {
  StreamPositions positions;
  for (const auto& [number, rank] : ranks_) {
    const StreamPosition last = rank->last_position();
    if (streams_.completed(last.stream) < last.position) positions.push_back(last);
  }
  return positions;
}

bool CudaRanks::all_issued() const noexcept {
  return std::ranges::all_of(ranks_, [](const auto& entry) { return entry.second->issued(); });
}

bool CudaRanks::copies_in_flight() const noexcept {
  return std::ranges::any_of(ranks_, [this](const auto& entry) {
    const StreamPosition last = entry.second->last_position();
    return entry.second->nccl_communicator() == nullptr && streams_.completed(last.stream) < last.position;
  });
}

void CudaRanks::leave(std::uint64_t generation, const std::function<void()>& poll) noexcept {
  std::exception_ptr cause;
  try {
    cause = std::make_exception_ptr(CollectiveError(CollectiveError::Kind::Aborted,
                                                    device_.to_string() + " was shut down", std::source_location()));
    // Another process may never be ready to create a communicator, so this waits less long for those of several.
    const auto begun = std::chrono::steady_clock::now();
    const auto is_submitting = [begun](const auto& entry) {
      const CudaRank& rank = *entry.second;
      const auto& nccl = rank.nccl_communicator();
      const bool waits_for_others = rank.shared() && nccl != nullptr && !nccl->created();
      return rank.has_unsubmitted() &&
             std::chrono::steady_clock::now() < begun + (waits_for_others ? patience : patience_with_nccl);
    };
    while (std::ranges::any_of(ranks_, is_submitting)) {
      poll();
      std::this_thread::yield();
    }
    const auto communicators = Communicators::of_process().leave(device_, generation);
    const auto deadline = std::chrono::steady_clock::now() + patience;
    while (!all_issued() && std::chrono::steady_clock::now() < deadline) {
      poll();
      std::this_thread::yield();
    }
    for (const auto& communicator : communicators) communicator->close(cause);
  } catch (...) {
    // Usually no memory: abort without waiting for the other ranks. But nothing may be in flight when the streams are
    // destroyed.
    cause = std::current_exception();
    report_task_error({device_, StreamId::current(), cause});
  }
  for (const auto& [number, rank] : ranks_) rank->refuse_unsubmitted(rank->abort(cause));
  while (!all_issued()) {
    poll();
    std::this_thread::yield();
  }
  if (resources_ == nullptr) return;
  sequencer().set_launch_thread(device_, {});
  posts_->run_calls();  // a coalesced call may be pending: it has no launches to drain, but leaves the gate
}

const std::shared_ptr<const CollectiveResources>& CudaRanks::resources() {
  if (resources_ != nullptr) return resources_;
  if (transfers_ == nullptr) transfers_ = streams_.create_dedicated_stream();
  if (copies_ == nullptr) copies_ = streams_.create_dedicated_stream();
  auto made = std::make_shared<const CollectiveResources>(
      CollectiveResources{streams_, posts_, transfers_, std::make_shared<PeerCopyStream>(copies_),
                          std::make_shared<CommunicationStream>(streams_), std::make_shared<CompletionOrder>(),
                          std::make_shared<PostedLaunches>()});
  // The gate counts a device from its notification until it has drained its launches. The notifying thread is still
  // counted by the gate itself at that time, so the gate is never quiescent between the release and the launch.
  posts_->set_coalesced([this] {
    sequencer().drain_launches(device_);
    for (const auto& [number, rank] : ranks_) rank->submit_what_is_refused();
    LaunchGate::of_process().remove_launch();
  });
  sequencer().set_launch_thread(device_, [posts = posts_] {
    LaunchGate::of_process().add_launch();
    posts->post_coalesced();
  });
  resources_ = std::move(made);
  return resources_;
}

void CudaRanks::close() noexcept {
  work_.reset();
  posts_->run_calls();  // those of DeviceWork: all work has completed
  for (const auto& [number, rank] : ranks_) {
    if (rank->nccl_communicator() == nullptr) continue;
    rank->nccl_communicator()->close();
    closed_.push_back(rank->nccl_communicator());
  }
  const auto deadline = std::chrono::steady_clock::now() + patience_with_nccl;
  for (const auto& nccl : closed_) {
    if (nccl->wait_until_destroyed(deadline)) continue;
    report_task_error({device_, StreamId::current(),
                       std::make_exception_ptr(CollectiveError(CollectiveError::Kind::Backend,
                                                               "NCCL did not destroy in time a communicator with " +
                                                                   device_.to_string() + ", which is being shut down",
                                                               std::source_location()))});
  }
}

void CudaRanks::reap() {
  std::erase_if(closed_, [](const auto& nccl) { return nccl->wait_until_destroyed({}); });
  closed_.reserve(closed_.size() + ranks_.size());
  std::erase_if(ranks_, [this](const auto& entry) {
    const StreamSlot slot = entry.second->last_position().stream;
    streams_.timeline(slot).poll();
    if (!entry.second->is_finished()) return false;
    entry.second->close();
    if (const auto& nccl = entry.second->nccl_communicator()) closed_.push_back(nccl);
    by_slot_[static_cast<std::size_t>(slot)] = nullptr;
    streams_.release_slot(slot);
    return true;
  });
}

}  // namespace cox::detail
