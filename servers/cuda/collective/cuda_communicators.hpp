#pragma once

#include <coxswain/collectives/group/communication_group.hpp>
#include <coxswain/collectives/sequencer/collective_dependency_tracker.hpp>
#include <coxswain/collectives/sequencer/collective_submission.hpp>
#include <coxswain/device_handle/base/device_id.hpp>
#include <coxswain/runtime/communication/collective_request.hpp>
#include <coxswain/runtime/memory/access_tracker.hpp>
#include <coxswain/servers/cuda/collective/cuda_communicator.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

namespace cox::detail {

/// The ranks that a CUDA device is. Device thread only.
class CudaCommunicators {
 public:
  CudaCommunicators(DeviceId device, CudaStreams& streams, std::shared_ptr<PostQueue> posts)
      : device_(device), streams_(streams), posts_(std::move(posts)) {}
  CudaCommunicators(const CudaCommunicators&) = delete;
  CudaCommunicators& operator=(const CudaCommunicators&) = delete;

  /// The rank that an operation is for: a transfer has other ranks than what all do together. Throws CollectiveError
  /// Aborted (the group is closed), CudaError, std::bad_alloc.
  [[nodiscard]] CudaCommunicator& find_or_create(const std::shared_ptr<CommunicationGroup>& group,
                                                 const CollectiveRequest& request);
  /// What is at `position` waits for these: notes the collectives among them, and those that they wait for themselves.
  /// Throws std::bad_alloc.
  void note_waits(const StreamPosition& position, const StreamPositions& waits) {
    if (!communicators_.empty()) note(position, waits);
  }
  /// The same of a collective: one that is refused still ends behind what it waits for. Returns the operations, as the
  /// sequencer knows them, that must be released before it.
  [[nodiscard]] CollectiveDependencies note_collective(const StreamPosition& position, const StreamPositions& waits);
  /// Where all that was asked for so far ends. Throws std::bad_alloc.
  [[nodiscard]] StreamPositions last_positions() const;
  /// The device asks for nothing any more. Calls `poll()` again and again until all it has asked for has been issued:
  /// what misses ranks waits for them at most `patience`, since one that is itself being shut down, or has been, is
  /// known not to come.
  void leave(std::uint64_t generation, const std::function<void()>& poll) noexcept;
  /// Copies of transfers, from or to the device, are not known to be complete.
  [[nodiscard]] bool copies_in_flight() const noexcept;
  /// Blocks until NCCL has nothing on the device any more, but for `patience_with_nccl` at most. When all work of the
  /// device is complete, after leave().
  void close() noexcept;

 private:
  static constexpr std::chrono::seconds patience{2};
  static constexpr std::chrono::seconds patience_with_nccl{30};

  void note(const StreamPosition& position, const StreamPositions& waits);
  template <class Visit>
  void note_each(const StreamPosition& position, const StreamPositions& waits, Visit&& visit);
  [[nodiscard]] const CudaCommunicator* communicator_at(StreamSlot slot) const noexcept {
    const auto index = static_cast<std::size_t>(slot);
    return index < by_slot_.size() ? by_slot_[index] : nullptr;
  }
  [[nodiscard]] const std::shared_ptr<const CudaCommunication>& communication();
  [[nodiscard]] bool all_issued() const noexcept;
  void reap();

  const DeviceId device_;
  CudaStreams& streams_;
  const std::shared_ptr<PostQueue> posts_;
  std::shared_ptr<const CudaCommunication> communication_;  // made by the first operation; its streams:
  std::shared_ptr<CudaStream> transfers_;
  std::shared_ptr<CudaStream> copies_;
  std::map<CommunicatorNumber, std::unique_ptr<CudaCommunicator>> communicators_;
  std::vector<const CudaCommunicator*> by_slot_;          // where their work is counted; null: of none of them
  std::vector<std::shared_ptr<NcclClique>> old_cliques_;  // that may not be gone yet
  std::vector<CollectiveDependencyTracker> awaited_;      // by slot: what its work has come to wait for
};

}  // namespace cox::detail
