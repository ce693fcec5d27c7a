#pragma once

#include <coxswain/collectives/communicator/communicator_rank.hpp>
#include <coxswain/collectives/nccl/nccl_communicator.hpp>
#include <coxswain/collectives/nccl/nccl_operation.hpp>
#include <coxswain/collectives/sequencer/collective_submission.hpp>
#include <coxswain/device_handle/base/device_id.hpp>
#include <coxswain/device_handle/base/unique_function.hpp>
#include <coxswain/device_handle/service/post_queue.hpp>
#include <coxswain/runtime/communication/collective_request.hpp>
#include <coxswain/runtime/communication/pending_collectives.hpp>
#include <coxswain/runtime/memory/access_tracker.hpp>
#include <coxswain/runtime/memory/stream_position.hpp>
#include <coxswain/servers/cuda/collective/completion_order.hpp>
#include <coxswain/servers/cuda/collective/waits_of_unissued.hpp>
#include <coxswain/servers/cuda/peer/peer_kernels.hpp>
#include <coxswain/servers/cuda/stream/cuda_streams.hpp>
#include <coxswain/servers/cuda/stream/launch_batch.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace cox::detail {

class CommunicationStream;
class PeerCopyStream;
class StreamHold;

/// Counts the launches for the communication stream that have been released and posted to the device thread: see
/// CudaRankLaunch::post_in_order(). Any thread.
class PostedLaunches {
 public:
  void add() noexcept { count_.fetch_add(1, std::memory_order_relaxed); }
  void remove() noexcept { count_.fetch_sub(1, std::memory_order_relaxed); }
  [[nodiscard]] bool empty() const noexcept { return count_.load(std::memory_order_relaxed) == 0; }

 private:
  std::atomic<std::size_t> count_{0};
};

/// The objects that all ranks of a device share: the streams on which operations are issued, the queue through which
/// released operations reach the device thread, and the completion order.
struct CollectiveResources {
  CudaStreams& streams;
  std::shared_ptr<PostQueue> posts;
  std::shared_ptr<CudaStream> transfer_stream;  ///< on which transfers wait for earlier work
  std::shared_ptr<PeerCopyStream> copy_stream;
  std::shared_ptr<CommunicationStream> communication_stream;
  std::shared_ptr<CompletionOrder> completion_order;
  std::shared_ptr<PostedLaunches> posted;
};

/// One rank of a communicator on GPUs, equivalent to an ncclComm_t. The sequencer releases its operations, in the same
/// order on all devices, and only released operations are issued. Completed operations are counted on a stream slot of
/// the rank, like the work of a stream. Buffers therefore record collectives as they record kernels, and streams wait
/// for both in the same way. Device thread only, but for the base class and functions marked otherwise. Its launches
/// keep it alive.
class CudaRank : public CommunicatorRank, public PostQueue::Posted, public std::enable_shared_from_this<CudaRank> {
 public:
  /// `slot`: where the operations are counted. `resources`: shared by all ranks of the device. `hold`: of the
  /// communication stream; null only if the process has joined no world. For the other parameters and the exceptions
  /// see CommunicatorRank.
  CudaRank(std::shared_ptr<Communicator> communicator, CommunicatorNumber number, CommunicationId devices,
           DeviceId device, StreamSlot slot, std::shared_ptr<const CollectiveResources> resources,
           std::shared_ptr<StreamHold> hold);
  ~CudaRank() = default;
  /// Ends the use of the rank, whose operations have all completed.
  void close() noexcept;

  /// Any thread may call this. Some of the objects that it points to are for the device thread only.
  [[nodiscard]] const CollectiveResources& resources() const noexcept { return *resources_; }
  /// Never null if the rank is shared(). For the device thread.
  [[nodiscard]] const std::shared_ptr<StreamHold>& hold() const noexcept { return hold_; }
  /// NCCL's communicators; null if the operations are transfers between devices of this process. Any thread.
  [[nodiscard]] const std::shared_ptr<NcclCommunicator>& nccl_communicator() const noexcept {
    return nccl_communicator_;
  }
  /// Where NCCL's communicators note the operations, and the rank's number there. Precondition: there are
  /// communicators.
  [[nodiscard]] NcclCommunicator::Lane& lane() const noexcept { return *lane_; }
  [[nodiscard]] std::size_t lane_rank() const noexcept { return lane_rank_; }
  /// The rank's number among those of NCCL's communicators in this process. Any thread.
  [[nodiscard]] std::size_t nccl_rank() const noexcept { return nccl_rank_; }
  /// The devices of this process, by their names in it. Any thread.
  [[nodiscard]] const std::vector<DeviceId>& own_devices() const noexcept { return own_devices_; }
  /// An operation has ended without being launched. Any thread.
  void note_refused(std::uint64_t sequence) noexcept {
    if (lane_ != nullptr) nccl_communicator_->note_refused(*lane_, lane_rank_, sequence);
  }
  /// The number of peer kernels of an algorithm that the rank has launched. All ranks launch them in one order, so the
  /// same number is the same kernel on all ranks.
  [[nodiscard]] std::uint32_t& kernel_count(CollectiveAlgorithm algorithm) noexcept {
    return kernel_counts_[static_cast<std::size_t>(algorithm)];
  }

  /// Adds to `waits`, of the next operation, what earlier operations wait for that have not been issued. Throws
  /// std::bad_alloc.
  void add_waits_of_unissued(StreamPositions& waits) { waits_of_unissued_.join(waits, issued(), resources_->streams); }
  /// The operation at `position` is refused. `poison`, which must not throw, poisons what it should have written. It is
  /// called in the order of the rank's operations: after earlier ones have been issued, and before later ones are, or
  /// other work that waits for this one. Throws std::bad_alloc; then it is not called.
  void add_refused(std::uint64_t position, UniqueFunction<void()> poison) {
    refused_.emplace(position, std::move(poison));
  }
  /// Poisons the memory of refused operations up to that position. Call before a later operation is checked.
  void poison_refused_until(std::uint64_t position) noexcept;
  /// Queues the rank's next operation, whose launch has next_position(). submit_to_sequencer() must be called
  /// afterwards. Throws CallError QueueFull (too many operations wait to be submitted to the sequencer),
  /// std::bad_alloc; then nothing was queued.
  void submit(CollectiveSubmission submission);
  /// Submits the queued operations to the sequencer. While NCCL is creating the communicator, a kernel is being
  /// compiled, or the launch gate is closed, it submits only a part of them or none, and the device thread submits the
  /// rest later without another call. What is refused is submitted at once. On failure it aborts the communicator for
  /// all ranks.
  void submit_to_sequencer() noexcept;
  /// Submits queued operations that are refused by now, because the communicator is broken.
  void submit_what_is_refused() noexcept;
  /// Whether operations are queued that have not been submitted to the sequencer.
  [[nodiscard]] bool has_unsubmitted() const noexcept { return !unsubmitted_.empty(); }
  /// Whether the largest number of operations that are submitted to the sequencer together is queued.
  [[nodiscard]] bool batch_full() const noexcept { return unsubmitted_.size() >= max_batch; }
  /// Whether the first queued operation should not wait for others to be submitted with it: nothing that was submitted
  /// before is on its way to be launched, and either other processes take part, which have to agree, or the operation
  /// is large, so that NCCL does it. Kernels of ours, which do small ones, take less time if they are launched
  /// together.
  [[nodiscard]] bool begins_stream() const noexcept;
  /// Refuses all queued operations: they will not be submitted to the sequencer.
  void refuse_unsubmitted(const std::exception_ptr& refusal) noexcept;

  /// The operation that completes at that position.
  [[nodiscard]] CollectiveId operation_at(std::uint64_t position) const noexcept {
    return {number(), position - begin_};
  }
  /// The position at which the last operation passed to submit() completes, and that of the next one.
  [[nodiscard]] StreamPosition last_position() const noexcept { return {slot_, last_}; }
  [[nodiscard]] StreamPosition next_position() const noexcept { return {slot_, last_ + 1}; }
  /// Whether all operations have been issued or refused.
  [[nodiscard]] bool issued() const noexcept { return resources_->streams.timeline(slot_).issued() >= last_; }
  /// Whether no operation is in flight and all further ones are refused.
  [[nodiscard]] bool is_finished() const { return resources_->streams.completed(slot_) >= last_ && refuses_all(); }

 private:
  static constexpr std::size_t max_batch = LaunchBatch::max_kernels;  // their kernels fit into one launch batch
  static constexpr std::size_t max_shared_batch = 4;

  [[nodiscard]] std::shared_ptr<NcclCommunicator> find_nccl_communicator() const;
  [[nodiscard]] NcclCommunicator::Lane* find_lane() const;
  /// The algorithm for operations, or why they are refused.
  struct Choice {
    CollectiveAlgorithm algorithm = CollectiveAlgorithm::Nccl;
    std::exception_ptr refusal = nullptr;
  };
  [[nodiscard]] std::optional<Choice> choose_algorithm(const CollectiveRequests& requests);
  /// Why the peer kernels of some code cannot be used.
  struct CodeFailure {
    std::exception_ptr cause;  // null: they can
    bool is_agreed = false;    // all processes have this failure
  };
  [[nodiscard]] std::optional<CodeFailure> failure_of_code(const CollectiveRequest& request);
  [[nodiscard]] bool keeps_order() const noexcept;
  [[nodiscard]] std::exception_ptr refusal_without_kernels(const CollectiveRequests& requests,
                                                           const std::exception_ptr& failure) const;
  [[nodiscard]] std::exception_ptr refusal_by_nccl(const CollectiveRequests& requests) const;
  [[nodiscard]] std::string why_no_kernels(const CollectiveRequests& requests) const;
  [[nodiscard]] std::size_t prepare();
  [[nodiscard]] bool submit_some();
  [[nodiscard]] bool wait_for_others();
  [[nodiscard]] std::exception_ptr abort_all_ranks() noexcept;
  [[nodiscard]] UniqueFunction<void()> make_retry();
  void run_posted() noexcept override;

  const std::shared_ptr<const CollectiveResources> resources_;
  const std::shared_ptr<StreamHold> hold_;
  const std::vector<DeviceId> own_devices_;
  const std::shared_ptr<NcclCommunicator> nccl_communicator_;
  const std::size_t nccl_rank_;
  const std::size_t lane_rank_;
  NcclCommunicator::Lane* const lane_;  // null if there are no NCCL communicators
  const StreamSlot slot_;
  const std::uint64_t begin_;                            // operation n completes at begin_ + n
  alignas(64) std::uint64_t last_;                       // this and the rest: not read by other threads
  std::array<std::uint32_t, 3> kernel_counts_{};         // by CollectiveAlgorithm
  std::map<PeerKernelCode, CodeFailure> code_failures_;  // where known
  CollectiveSubmissions unsubmitted_;                    // in order
  WaitsOfUnissued waits_of_unissued_;
  std::map<std::uint64_t, UniqueFunction<void()>> refused_;  // by position; not called yet
  bool retry_pending_ = false;                               // a callback of make_retry() will continue the submission
  bool held_up_ = false;                                     // a submission was deferred since the queue was last empty
  std::optional<std::chrono::steady_clock::time_point> ahead_since_;  // when QueueFull began
  PendingCollectives& pending_;
  std::optional<PendingCollectives::Call> rest_;  // set while operations wait to be submitted to the sequencer
};

}  // namespace cox::detail
