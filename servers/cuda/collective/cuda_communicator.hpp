#pragma once

#include <coxswain/collectives/group/communicator.hpp>
#include <coxswain/collectives/nccl/nccl_clique.hpp>
#include <coxswain/collectives/nccl/nccl_operation.hpp>
#include <coxswain/collectives/sequencer/collective_submission.hpp>
#include <coxswain/device_handle/base/unique_function.hpp>
#include <coxswain/runtime/buffer/operation_memory.hpp>
#include <coxswain/runtime/communication/collective_request.hpp>
#include <coxswain/runtime/communication/pending_collectives.hpp>
#include <coxswain/runtime/memory/access_tracker.hpp>
#include <coxswain/runtime/memory/stream_position.hpp>
#include <coxswain/servers/cuda/collective/pending_submissions.hpp>
#include <coxswain/servers/cuda/collective/rank_operation.hpp>
#include <coxswain/servers/cuda/copy/peer_copy.hpp>
#include <coxswain/servers/cuda/peer/peer_kernels.hpp>
#include <coxswain/servers/cuda/stream/cuda_streams.hpp>
#include <coxswain/servers/cuda/stream/launch_batch.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace cox::detail {

/// What a rank has for an operation, or a group of them, and when it may begin.
struct CudaCollective {
  CollectiveRequests requests;
  std::vector<PeerRange> ranges;  ///< of each request, where they are transfers
  NcclCalls calls;                ///< else
  StreamPositions waits;          ///< what must be done before
  /// The same as events, if all of it has been issued and they are transfers.
  std::optional<std::vector<std::shared_ptr<CudaEvent>>> ready = std::nullopt;
  CollectiveDependencies dependencies;  ///< the collectives among that, and before it
  std::exception_ptr failure;           ///< why the rank cannot take part
  OperationMemory uses;                 ///< for L14
};

/// One rank of a communicator on GPUs: what NCCL calls an ncclComm_t. Its operations are issued when the sequencer says
/// that it is their turn: the order is the same on all devices. What has ended is counted like the work of a stream, on
/// a slot of its own, so that buffers remember collectives as they do kernels, and streams wait for them alike. Device
/// thread only.
class CudaCommunicator : public Communicator {
 public:
  /// The rest as Communicator.
  CudaCommunicator(std::shared_ptr<CommunicationGroup> group, CommunicatorNumber number, CommunicationId devices,
                   DeviceId device, StreamSlot slot, std::shared_ptr<const CudaCommunication> communication);
  /// All that was asked for is complete.
  ~CudaCommunicator();

  /// The rank's next operation, on behalf of a stream, whose errors get what becomes of it. Returns where its end will
  /// be; then submit_to_sequencer() must be called. Throws CallError QueueFull (too much waits to be asked for),
  /// std::bad_alloc; then nothing was submitted.
  StreamPosition submit(CudaCollective&& collective, CudaStream& stream);
  /// Asks for what has been submitted; or for some of it, and for the rest by itself when NCCL has made the
  /// communicator, the code is there, and the gate is open. If that fails, the communicator is given up for all ranks.
  void submit_to_sequencer() noexcept;
  /// There is something to ask for.
  [[nodiscard]] bool has_unsubmitted() const noexcept { return !unsubmitted_.empty(); }
  /// As much as is asked for at a time.
  [[nodiscard]] bool batch_full() const noexcept { return unsubmitted_.size() >= max_batch; }
  /// What was submitted will not be asked for.
  void refuse_unsubmitted(const std::exception_ptr& refusal) noexcept;

  /// The operation whose end is at that position.
  [[nodiscard]] CollectiveId operation_at(std::uint64_t position) const noexcept {
    return {number(), position - begin_};
  }
  /// Where the last operation ends that was asked for.
  [[nodiscard]] StreamPosition last_position() const noexcept { return {slot_, last_}; }
  /// All that was asked for has been issued, or refused.
  [[nodiscard]] bool issued() const noexcept {
    return context_->communication->streams.timeline(slot_).issued() >= last_;
  }
  /// Nothing is under way, and nothing more will be.
  [[nodiscard]] bool is_finished() const {
    return context_->communication->streams.completed(slot_) >= last_ && refuses_all();
  }
  /// NCCL's communicators; null where the operations are transfers.
  [[nodiscard]] const std::shared_ptr<NcclClique>& clique() const noexcept { return context_->clique; }

 private:
  static constexpr std::size_t max_batch = LaunchBatch::max_kernels;  // its device can be given their kernels together

  [[nodiscard]] std::shared_ptr<RankOperation> make_part(CudaCollective& collective, CudaStream& stream) const;
  [[nodiscard]] std::shared_ptr<void> make_shared_part(const CollectiveRequests& requests,
                                                       CollectiveAlgorithm algorithm) const;
  [[nodiscard]] std::exception_ptr refusal_for(const CollectiveRequests& requests, CollectiveAlgorithm algorithm) const;
  [[nodiscard]] std::optional<CollectiveAlgorithm> choose_algorithm(const CollectiveRequests& requests);
  [[nodiscard]] std::optional<bool> has_code(const CollectiveRequest& request);
  [[nodiscard]] std::size_t prepare();
  [[nodiscard]] bool submit_some();
  [[nodiscard]] bool wait_for_others();
  [[nodiscard]] std::exception_ptr abort_all_ranks() noexcept;
  [[nodiscard]] UniqueFunction<void()> make_retry();

  const StreamSlot slot_;
  const std::shared_ptr<RankContext> context_;
  const std::uint64_t begin_;  // operation n ends at begin_ + n
  std::uint64_t last_;
  std::map<PeerKernels::Code, bool> has_code_;  // whether PeerKernels has that for such operations, where that is known
  PendingSubmissions unsubmitted_;
  bool retry_pending_ = false;  // what make_retry() has given will be called: it asks
  bool held_up_ = false;        // since there was nothing unasked, something had to be asked for later
  std::optional<std::chrono::steady_clock::time_point> ahead_since_;  // as far as it may be, with more unasked
  const std::shared_ptr<CudaCommunicator*> self_;  // of calls that come later: null when this is gone
  PendingCollectives& pending_;
  std::optional<PendingCollectives::Call> rest_;  // while there is something unasked
};

}  // namespace cox::detail
