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

/// One rank's input to an operation or to a group of operations: requests, memory, and what must complete before.
struct CudaCollective {
  CollectiveRequests requests;
  std::vector<PeerRange> ranges;  ///< for transfers: memory of each request
  NcclCalls calls;                ///< for collectives: buffers of each request
  StreamPositions waits;          ///< work that must complete before the operation begins
  /// Transfers only: `waits` as events, if all of that work has been issued.
  std::optional<std::vector<std::shared_ptr<CudaEvent>>> ready = std::nullopt;
  CollectiveDependencies dependencies;  ///< collectives that `waits` depends on, directly or through other streams
  std::exception_ptr failure;           ///< why the rank cannot take part; null: it can
  OperationMemory uses;                 ///< memory that the operation accesses, for poison (L14)
};

/// One rank of a communicator on GPUs, equivalent to an ncclComm_t. The sequencer releases its operations, in the same
/// order on all devices, and only released operations are issued. Completed operations are counted on a stream slot of
/// the communicator, like the work of a stream. Buffers therefore record collectives as they record kernels, and
/// streams wait for both in the same way. Device thread only.
class CudaCommunicator : public Communicator {
 public:
  /// `slot`: where the operations are counted. `communication`: shared by all communicators of the device. For the
  /// other parameters and the exceptions see Communicator.
  CudaCommunicator(std::shared_ptr<CommunicationGroup> group, CommunicatorNumber number, CommunicationId devices,
                   DeviceId device, StreamSlot slot, std::shared_ptr<const CudaCommunication> communication);
  /// Precondition: all operations of the rank have completed.
  ~CudaCommunicator();

  /// Queues the rank's next operation on behalf of `stream`; a failure is added to the errors of that stream. Returns
  /// the position at which the operation completes. submit_to_sequencer() must be called afterwards. Throws CallError
  /// QueueFull (too many operations wait to be submitted to the sequencer), std::bad_alloc; then nothing was queued.
  StreamPosition submit(CudaCollective&& collective, CudaStream& stream);
  /// Submits the queued operations to the sequencer. While NCCL is creating the communicator, a kernel is being
  /// compiled, or the launch gate is closed, it submits only a part of them or none, and the device thread submits the
  /// rest later without another call. On failure it aborts the communicator for all ranks.
  void submit_to_sequencer() noexcept;
  /// Whether operations are queued that have not been submitted to the sequencer.
  [[nodiscard]] bool has_unsubmitted() const noexcept { return !unsubmitted_.empty(); }
  /// Whether as many operations are queued as are submitted to the sequencer at a time.
  [[nodiscard]] bool batch_full() const noexcept { return unsubmitted_.size() >= max_batch; }
  /// Refuses all queued operations: they will not be submitted to the sequencer.
  void refuse_unsubmitted(const std::exception_ptr& refusal) noexcept;

  /// The operation that completes at that position.
  [[nodiscard]] CollectiveId operation_at(std::uint64_t position) const noexcept {
    return {number(), position - begin_};
  }
  /// The position at which the last operation passed to submit() completes.
  [[nodiscard]] StreamPosition last_position() const noexcept { return {slot_, last_}; }
  /// Whether all operations have been issued or refused.
  [[nodiscard]] bool issued() const noexcept {
    return context_->communication->streams.timeline(slot_).issued() >= last_;
  }
  /// Whether no operation is in flight and all further ones are refused.
  [[nodiscard]] bool is_finished() const {
    return context_->communication->streams.completed(slot_) >= last_ && refuses_all();
  }
  /// NCCL's communicators; null where the operations are transfers.
  [[nodiscard]] const std::shared_ptr<NcclClique>& clique() const noexcept { return context_->clique; }

 private:
  static constexpr std::size_t max_batch = LaunchBatch::max_kernels;  // their kernels fit into one launch batch

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
  const std::uint64_t begin_;  // operation n completes at begin_ + n
  std::uint64_t last_;
  std::map<PeerKernels::Code, bool> has_code_;  // whether PeerKernels has usable kernels, where known
  PendingSubmissions unsubmitted_;
  bool retry_pending_ = false;  // a callback of make_retry() will continue the submission
  bool held_up_ = false;        // a submission was deferred since the queue was last empty
  std::optional<std::chrono::steady_clock::time_point> ahead_since_;  // when QueueFull began
  const std::shared_ptr<CudaCommunicator*> self_;  // for deferred callbacks: null after the destructor
  PendingCollectives& pending_;
  std::optional<PendingCollectives::Call> rest_;  // set while operations wait to be submitted to the sequencer
};

}  // namespace cox::detail
