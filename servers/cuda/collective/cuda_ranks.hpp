#pragma once

#include <coxswain/collectives/communicator/communicator.hpp>
#include <coxswain/collectives/sequencer/collective_dependency_tracker.hpp>
#include <coxswain/collectives/sequencer/collective_submission.hpp>
#include <coxswain/device_handle/base/device_id.hpp>
#include <coxswain/runtime/communication/collective_request.hpp>
#include <coxswain/runtime/memory/access_tracker.hpp>
#include <coxswain/servers/cuda/collective/cuda_rank.hpp>
#include <coxswain/servers/cuda/collective/device_work.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

namespace cox::detail {

/// The ranks of one CUDA device in all communicators that it has used. Device thread only.
class CudaRanks {
 public:
  CudaRanks(DeviceId device, CudaStreams& streams, std::shared_ptr<PostQueue> posts)
      : device_(device), streams_(streams), posts_(std::move(posts)) {
    work_.emplace(device, streams, posts_);
  }
  CudaRanks(const CudaRanks&) = delete;
  CudaRanks& operator=(const CudaRanks&) = delete;
  ~CudaRanks();

  /// Finds or creates the rank for an operation: that of the operations of all ranks, or of the transfers in one
  /// direction between two devices. Throws CollectiveError Aborted (the communicator is closed), CudaError,
  /// std::bad_alloc.
  [[nodiscard]] CudaRank& find_or_create(const std::shared_ptr<Communicator>& communicator,
                                         const CollectiveRequest& request);
  /// Records that the work at `position` waits for `waits`: for the collectives among them, and for those that they
  /// wait for in turn. Throws std::bad_alloc.
  void note_waits(const StreamPosition& position, const StreamPositions& waits) {
    if (!ranks_.empty()) note(position, waits);
  }
  /// Records what a collective at `position` waits for. This matters even if the collective is refused, since it still
  /// completes only after its waits. Returns the operations that the sequencer must release before it. Throws
  /// std::bad_alloc.
  [[nodiscard]] CollectiveDependencies note_collective(const StreamPosition& position, const StreamPositions& waits);
  /// The last position of each rank that has operations in flight. Throws std::bad_alloc.
  [[nodiscard]] StreamPositions last_positions() const;
  /// Ends the use of the ranks: the device submits no further operations. Blocks and calls `poll()` repeatedly until
  /// all submitted operations have been issued or refused. Operations that miss ranks wait for them for `patience` at
  /// most; a rank whose device is being shut down, or was shut down, is known not to arrive.
  void leave(std::uint64_t generation, const std::function<void()>& poll) noexcept;
  /// Whether transfers from or to the device are not known to have completed.
  [[nodiscard]] bool copies_in_flight() const noexcept;
  /// Blocks until NCCL's communicators on the device are destroyed, for `patience_with_nccl` at most. Call it after
  /// leave(), when all work of the device has completed.
  void close() noexcept;

 private:
  static constexpr std::chrono::seconds patience{2};
  static constexpr std::chrono::seconds patience_with_nccl = NcclCommunicator::patience_with_end;

  void note(const StreamPosition& position, const StreamPositions& waits);
  template <class Visit>
  void note_each(const StreamPosition& position, const StreamPositions& waits, Visit&& visit);
  [[nodiscard]] const CudaRank* rank_at(StreamSlot slot) const noexcept {
    const auto index = static_cast<std::size_t>(slot);
    return index < by_slot_.size() ? by_slot_[index] : nullptr;
  }
  [[nodiscard]] const std::shared_ptr<const CollectiveResources>& resources();
  [[nodiscard]] bool all_issued() const noexcept;
  void reap();

  const DeviceId device_;
  CudaStreams& streams_;
  const std::shared_ptr<PostQueue> posts_;
  std::optional<DeviceWork> work_;                        // until close()
  std::shared_ptr<const CollectiveResources> resources_;  // created by the first operation, with the two streams:
  std::shared_ptr<CudaStream> transfers_;
  std::shared_ptr<CudaStream> copies_;
  std::shared_ptr<StreamHold> hold_;  // of the communication stream; null before the process has joined a world
  std::map<CommunicatorNumber, std::shared_ptr<CudaRank>> ranks_;
  std::vector<const CudaRank*> by_slot_;                   // the rank that uses the slot; null: none
  std::vector<std::shared_ptr<NcclCommunicator>> closed_;  // those that may not be destroyed yet
  std::vector<CollectiveDependencyTracker> awaited_;       // by slot: the collectives that its work waits for
};

}  // namespace cox::detail
