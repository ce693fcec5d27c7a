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

/// What the communicators of a device share: where their operations are issued, and how they are told of their turns.
struct CudaCommunication {
  CudaStreams& streams;
  std::shared_ptr<PostQueue> posts;
  std::shared_ptr<CudaStream> stream;  ///< on which transfers wait for what comes before them
  std::shared_ptr<PeerCopyStream> copies;
  std::shared_ptr<CommunicationStream> nccl;
  std::shared_ptr<CompletionOrder> turns;
};

/// What the parts of one rank of a communicator share: they may outlive the rank. Set once, before the first part; any
/// thread but for what is said to be the device thread's.
struct RankContext {
  std::shared_ptr<CommunicationGroup> group;
  CommunicatorNumber number{};
  CommunicationId devices;  ///< of the communicator, by rank
  std::size_t rank = 0;
  DeviceId device;
  std::shared_ptr<FlightRecorder> recorder;
  std::shared_ptr<const CudaCommunication> communication;
  std::shared_ptr<NcclClique> clique;  ///< null where the operations are transfers
  /// Kernels of our own that the rank has launched, by way: the same number on all ranks is the same kernel, as they
  /// launch in one order. Device thread.
  std::array<std::uint32_t, 3> launched{};
};

/// A rank's part in one operation, from when it is asked for to its end: what all kinds of them have.
class RankOperation : public LoggedOperation {
 public:
  /// Device thread. Throws std::bad_alloc.
  explicit RankOperation(std::shared_ptr<RankContext> whose);
  RankOperation(const RankOperation&) = delete;
  RankOperation& operator=(const RankOperation&) = delete;
  virtual ~RankOperation();

  /// It has been noted, and can be asked for. Device thread.
  virtual void on_submitted() noexcept {}
  /// It is the operation's turn. `shared`: what rank 0 has handed in. Any thread, if not said otherwise; does not
  /// block.
  virtual void on_release(std::shared_ptr<void> shared) = 0;
  /// Device thread. The part has been issued, and ends with `event`; or, without one, it never will be, and ends behind
  /// what it was to wait for: others use its memory behind it.
  void complete(const std::exception_ptr& error, const std::shared_ptr<CudaEvent>& event) noexcept;
  /// Device thread. The operation was refused, or has failed since a rank would have read poisoned memory: what the
  /// rank should have written is poisoned, and the communicator stays good. It ends as without an event.
  void refuse(const std::exception_ptr& refusal) noexcept;
  /// The operation has failed: what the rank should have written, and all that has come of that, is poisoned, and then
  /// it is told to the stream that asked for it, and the communicator ends, since the ranks no longer agree on what
  /// comes next. Any thread.
  void fail(const std::exception_ptr& error) noexcept;

  const std::shared_ptr<RankContext> context;
  StreamPosition position;                    ///< of the end
  StreamPositions waits;                      ///< what must be done before
  std::shared_ptr<CudaStream> origin_stream;  ///< whose errors get what becomes of it
  std::uint64_t error_sequence = 0;           ///< among these
  std::shared_ptr<FailureReports> reports;    ///< of that stream
  std::source_location site;
  std::uint64_t sequence = 0;  ///< on its communicator

 protected:
  /// As PoisonLog::admit_part(). Device thread. `self`: the part. Throws std::bad_alloc.
  void admit(std::shared_ptr<LoggedOperation> self);
  /// Why the operation fails on all ranks.
  [[nodiscard]] std::exception_ptr rank_failed(const std::exception_ptr& refusal) const noexcept;
  [[nodiscard]] PoisonLog& poison_log() const noexcept { return origin_stream->poison_log(); }
  /// The part has its turn, and will be issued later.
  void reserve_slot() noexcept {
    turn_ = context->communication->turns->take();
    is_expected_ = false;
    behind_ = turn_ - 1;
  }
  /// The part has its turn, and all that it waits for is known as events: it holds nobody up.
  void skip_slot() noexcept { behind_ = context->communication->turns->last(); }
  /// Device thread. The part has been issued, or never will be. Idempotent.
  void retire() noexcept;

 private:
  [[nodiscard]] std::exception_ptr note_refused(const std::exception_ptr& refusal) noexcept override;
  void tell_refused(const std::exception_ptr& error) noexcept override;
  void note_rank_failed(const std::exception_ptr& error) noexcept override;
  void tell_rank_failed(const std::exception_ptr& error) noexcept override;
  /// What it is, for errors. Of a part that was noted in the log.
  [[nodiscard]] virtual std::string name() const = 0;
  [[nodiscard]] virtual std::shared_ptr<LoggedOperation> shared_self() = 0;
  void complete_after_waits(const std::exception_ptr& error) noexcept;

  bool is_expected_ = true;   // to take a place
  std::uint64_t turn_ = 0;    // among those that others' ends come behind; 0: none, or it has been issued
  std::uint64_t behind_ = 0;  // its end comes behind that turn

  bool is_logged_ = false;  // written before others know of it: the log knows its memory
  std::atomic<bool> failed_{false};
};

/// A part's turn while it waits to be issued on the stream `stream`: then part->issue(part, target), on the device
/// thread; or, if it is dropped without that, part->abort(error), since the others wait for it: with the error that the
/// stream was told of before.
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
  // The stream is that of collectives or transfers, whose errors nobody else asks for.
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
  CudaStream* stream_;  // which the part keeps
};

}  // namespace detail

}  // namespace cox
