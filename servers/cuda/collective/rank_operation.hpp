#pragma once

#include <coxswain/collectives/group/communication_group.hpp>
#include <coxswain/collectives/watch/communicator_number.hpp>
#include <coxswain/collectives/watch/flight_recorder.hpp>
#include <coxswain/device_handle/base/device_id.hpp>
#include <coxswain/device_handle/service/post_queue.hpp>
#include <coxswain/runtime/communication/collective_error.hpp>
#include <coxswain/runtime/communication/communication_id.hpp>
#include <coxswain/runtime/memory/access_tracker.hpp>
#include <coxswain/runtime/memory/stream_position.hpp>
#include <coxswain/servers/cuda/collective/completion_order.hpp>
#include <coxswain/servers/cuda/stream/cuda_streams.hpp>
#include <coxswain/servers/cuda/stream/poison_log.hpp>
#include <coxswain/servers/cuda/stream/stream_queue.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <source_location>
#include <string>
#include <utility>

namespace cox {

class NcclClique;

namespace detail {

class CommunicationStream;
class PeerCopyStream;

/// The objects that all communicators of a device share: the streams on which operations are issued, the queue through
/// which released operations reach the device thread, and the completion order.
struct CudaCommunication {
  CudaStreams& streams;
  std::shared_ptr<PostQueue> posts;
  std::shared_ptr<CudaStream> stream;  ///< on which transfers wait for earlier work
  std::shared_ptr<PeerCopyStream> copies;
  std::shared_ptr<CommunicationStream> nccl;
  std::shared_ptr<CompletionOrder> turns;
};

/// The data that all parts of one rank of a communicator share. Parts may outlive the CudaCommunicator. The members are
/// set once, before the first part is made. Any thread, except for members marked as device thread.
struct RankContext {
  std::shared_ptr<CommunicationGroup> group;
  CommunicatorNumber number{};
  CommunicationId devices;  ///< of the communicator, by rank
  std::size_t rank = 0;
  DeviceId device;
  std::shared_ptr<FlightRecorder> recorder;
  std::shared_ptr<const CudaCommunication> communication;
  std::shared_ptr<NcclClique> clique;  ///< null where the operations are transfers
  /// The number of peer kernels that the rank has launched, by CollectiveAlgorithm. All ranks launch them in one order,
  /// so the same number is the same kernel on all ranks. Device thread.
  std::array<std::uint32_t, 3> launched{};
};

/// Base of a rank's part in one operation, from the submission to the completion of the operation.
class RankOperation : public LoggedOperation {
 public:
  /// Device thread. Throws std::bad_alloc.
  explicit RankOperation(std::shared_ptr<RankContext> whose);
  RankOperation(const RankOperation&) = delete;
  RankOperation& operator=(const RankOperation&) = delete;
  virtual ~RankOperation();

  /// Called when the part has been queued for submission to the sequencer. Device thread.
  virtual void on_submitted() noexcept {}
  /// Called when the sequencer has released the operation. `shared`: the object that rank 0 has submitted. Any thread,
  /// unless an override says otherwise; does not block.
  virtual void on_release(std::shared_ptr<void> shared) = 0;
  /// Completes the part. With `event`: the part has been issued and completes when the event is reached. Without: it
  /// will never be issued, and completes after everything that it was to wait for, since later work uses its memory
  /// after it. `error`: null, or passed to fail(). Device thread.
  void complete(const std::exception_ptr& error, const std::shared_ptr<CudaEvent>& event) noexcept;
  /// The operation was refused, or has failed because a rank would have read poisoned memory. Poisons what the rank
  /// should have written (L14); the communicator stays usable. The part completes as with complete() without an event.
  /// Device thread.
  void refuse(const std::exception_ptr& refusal) noexcept;
  /// The operation has failed. Poisons what the rank should have written, and everything computed from that (L14). Then
  /// aborts the communicator, since the ranks no longer agree on the next operation, and reports the failure to the
  /// stream that submitted the operation. Idempotent. Any thread.
  void fail(const std::exception_ptr& error) noexcept;

  const std::shared_ptr<RankContext> context;
  StreamPosition position;                    ///< at which the part completes
  StreamPositions waits;                      ///< work that must complete before the part begins
  std::shared_ptr<CudaStream> origin_stream;  ///< the submitting stream, whose errors get a failure of the part
  std::uint64_t error_sequence = 0;           ///< the part's place among these errors
  std::shared_ptr<FailureReports> reports;    ///< of origin_stream
  std::source_location site;
  std::uint64_t sequence = 0;  ///< number of the operation on its communicator

 protected:
  /// Adds the part to the poison log: see PoisonLog::admit_part(). `self`: this part. Device thread. Throws
  /// std::bad_alloc.
  void admit(std::shared_ptr<LoggedOperation> self);
  /// The error with which the operation fails on all ranks, with `refusal` as its cause.
  [[nodiscard]] std::exception_ptr rank_failed(const std::exception_ptr& refusal) const noexcept;
  [[nodiscard]] PoisonLog& poison_log() const noexcept { return origin_stream->poison_log(); }
  /// Takes the part's turn: the part will be issued later, and then retire() must be called.
  void reserve_slot() noexcept {
    turn_ = context->communication->turns->take();
    is_expected_ = false;
    behind_ = turn_ - 1;
  }
  /// Takes no turn: everything that the part waits for is known as events, so no later completion has to wait for it.
  void skip_slot() noexcept { behind_ = context->communication->turns->last(); }
  /// The part has been issued, or never will be: ends its turn. Device thread. Idempotent.
  void retire() noexcept;

 private:
  [[nodiscard]] std::exception_ptr record_refusal(const std::exception_ptr& refusal) noexcept override;
  void report_refusal(const std::exception_ptr& error) noexcept override;
  void record_rank_failure(const std::exception_ptr& error) noexcept override;
  void report_rank_failure(const std::exception_ptr& error) noexcept override;
  /// A description of the operation, for error messages.
  [[nodiscard]] virtual std::string name() const = 0;
  [[nodiscard]] virtual std::shared_ptr<LoggedOperation> shared_self() = 0;
  void complete_after_waits(const std::exception_ptr& error) noexcept;

  bool is_expected_ = true;   // a turn is reserved and has not been taken
  std::uint64_t turn_ = 0;    // the part's turn in the CompletionOrder; 0: none, or it has been issued
  std::uint64_t behind_ = 0;  // the part's completion is published after all turns up to this one

  bool is_logged_ = false;  // the part is in the poison log; written before other threads know the part
  std::atomic<bool> failed_{false};
};

/// The task that issues a part on `stream`: it calls part->issue(part, target) on the device thread. If it is destroyed
/// without having been called, it calls part->abort(error) instead, since the other ranks wait for the part. `error` is
/// what was recorded for `stream` before.
template <class Part>
class LaunchGuard {
 public:
  LaunchGuard(std::shared_ptr<Part> part, CudaStream& stream) noexcept : part_(std::move(part)), stream_(&stream) {}
  LaunchGuard(LaunchGuard&&) noexcept = default;
  LaunchGuard& operator=(LaunchGuard&&) = delete;
  ~LaunchGuard() {
    if (part_ != nullptr) part_->abort(why());
  }
  void operator()(const IssueTarget& target) {
    const std::shared_ptr<Part> part = std::exchange(part_, nullptr);
    part->issue(part, target);
  }

 private:
  // The stream is an internal one, for collectives or transfers: no other code takes its errors.
  [[nodiscard]] std::exception_ptr why() const noexcept {
    try {
      if (auto error = stream_->remove_errors_between(0, ~std::uint64_t{0})) return error;
      return std::make_exception_ptr(
          CollectiveError(CollectiveError::Kind::Backend, "there was no memory to have it issued", part_->site));
    } catch (...) {
      return std::current_exception();
    }
  }

  std::shared_ptr<Part> part_;
  CudaStream* stream_;  // kept alive by the part
};

}  // namespace detail

}  // namespace cox
