#pragma once

#include <coxswain/collectives/sequencer/collective_launch.hpp>
#include <coxswain/device_handle/service/post_queue.hpp>
#include <coxswain/runtime/memory/access_tracker.hpp>
#include <coxswain/runtime/memory/stream_position.hpp>
#include <coxswain/servers/cuda/stream/cuda_streams.hpp>
#include <coxswain/servers/cuda/stream/poison_log.hpp>
#include <coxswain/servers/cuda/stream/stream_queue.hpp>

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <source_location>
#include <string>

namespace cox::detail {

class CudaRank;

/// A rank's launch: its work in one operation, from the submission to the completion on its device. Base of
/// CudaCollectiveLaunch and CudaTransferLaunch. May outlive the use of its rank.
class CudaRankLaunch : public CollectiveLaunch,
                       public LoggedOperation,
                       public PostQueue::Posted,
                       public std::enable_shared_from_this<CudaRankLaunch> {
 public:
  /// Device thread. Throws std::bad_alloc.
  explicit CudaRankLaunch(std::shared_ptr<CudaRank> of);
  CudaRankLaunch(const CudaRankLaunch&) = delete;
  CudaRankLaunch& operator=(const CudaRankLaunch&) = delete;
  virtual ~CudaRankLaunch();

  /// Calls on_release(), or has the device thread call refuse().
  void take_grant(LaunchGrant&& grant) final;
  void cancel(const std::exception_ptr& cause) noexcept final { refuse(cause); }
  /// Takes the rank's next position. `stream`: submits the operation, at `from`. Device thread.
  void set_origin(CudaStream& stream, std::source_location from);
  /// Completes the launch. With `event`: it has been issued and completes when the event is reached. Without: it will
  /// never be issued, and completes after everything that it was to wait for, since later work uses its memory after
  /// it. `error`: null, or passed to fail(). Device thread.
  void complete(const std::exception_ptr& error, const std::shared_ptr<CudaEvent>& event) noexcept;
  /// The operation was refused, or has failed because a rank would have read poisoned memory. Poisons what the rank
  /// should have written (L14); the communicator stays usable. The launch completes as with complete() without an
  /// event. Device thread.
  void refuse(const std::exception_ptr& refusal) noexcept;
  /// The operation has failed. Poisons what the rank should have written, and everything computed from that (L14). Then
  /// aborts the communicator, since the ranks no longer agree on the next operation, and reports the failure to the
  /// stream that submitted the operation. Idempotent. Any thread.
  void fail(const std::exception_ptr& error) noexcept;

  const std::shared_ptr<CudaRank> rank;
  StreamPosition position;                    ///< at which the launch completes
  StreamPositions waits;                      ///< work that must complete before the launch begins
  std::shared_ptr<CudaStream> origin_stream;  ///< the submitting stream, whose errors get a failure of the launch
  std::uint64_t error_sequence = 0;           ///< the place of the launch among these errors
  std::shared_ptr<FailureReports> reports;    ///< of origin_stream
  std::source_location site;
  std::uint64_t sequence = 0;  ///< number of the operation on its communicator

 protected:
  /// The sequencer has released the operation. `operation`: the object that rank 0 has submitted. Any thread, unless an
  /// override says otherwise; does not block.
  virtual void on_release(std::shared_ptr<void> operation) = 0;
  /// The device thread has reached what post() asked for.
  virtual void on_posted() noexcept {}
  /// Has the device thread call on_posted(). Any thread.
  void post() noexcept;
  /// As post(). Until then, the device's later launches for the communication stream are posted as well, so that they
  /// come behind this one: what it poisons, they must find poisoned.
  void post_in_order() noexcept;
  /// Issues the launch to the driver. `target`: the stream that it was queued on. Device thread.
  virtual void issue(const IssueTarget& target) = 0;
  /// The launch will not be issued, which the other ranks must learn, since they wait for it. Device thread.
  virtual void abort(const std::exception_ptr& error) noexcept = 0;
  /// Queues the launch on `stream`, an internal one. issue() is called when the driver can wait for `waits_for`, and
  /// for `room` if it is not null; abort() is called if that fails. Device thread.
  void queue_on(CudaStream& stream, const StreamPositions& waits_for,
                const std::shared_ptr<CudaEvent>& room = nullptr) noexcept;
  /// Adds the launch to the poison log: see PoisonLog::admit_part(). Device thread. Throws std::bad_alloc.
  void admit();
  /// Whether the launch was found to read poisoned memory: then the operation fails on all ranks. Any thread.
  [[nodiscard]] bool reads_poison() const noexcept { return reads_poison_.load(std::memory_order_relaxed); }
  /// The error with which the operation fails on all ranks, with `refusal` as its cause.
  [[nodiscard]] std::exception_ptr rank_failed(const std::exception_ptr& refusal) const noexcept;
  [[nodiscard]] PoisonLog& poison_log() const noexcept { return origin_stream->poison_log(); }
  /// Takes the turn of the launch: it will be issued later, and then retire() must be called.
  void reserve_slot() noexcept;
  /// Takes no turn: everything that the launch waits for is known as events, so no later completion has to wait for it.
  void skip_slot() noexcept;
  /// The launch has been issued, or never will be: ends its turn. Device thread. Idempotent.
  void retire() noexcept;
  /// shared_from_this() as the class that derives from this one.
  template <class Derived>
  [[nodiscard]] std::shared_ptr<Derived> shared_as() {
    return std::static_pointer_cast<Derived>(shared_from_this());
  }

 private:
  class Guard;

  [[nodiscard]] std::exception_ptr record_refusal(const std::exception_ptr& refusal) noexcept override;
  void report_refusal(const std::exception_ptr& error) noexcept override;
  void record_rank_failure(const std::exception_ptr& error) noexcept override;
  void report_rank_failure(const std::exception_ptr& error) noexcept override;
  /// A description of the operation, for error messages.
  [[nodiscard]] virtual std::string name() const = 0;
  void run_posted() noexcept final;
  void complete_after_waits(const std::exception_ptr& error) noexcept;
  void poison_in_order(const std::exception_ptr& error) noexcept;

  bool is_expected_ = true;   // a turn is reserved and has not been taken
  std::uint64_t turn_ = 0;    // the turn of the launch in the CompletionOrder; 0: none, or it has been issued
  std::uint64_t behind_ = 0;  // the completion is published after all turns up to this one

  std::exception_ptr refusal_;  // why the sequencer has refused it; written before it is posted
  bool is_posted_in_order_ = false;
  bool is_logged_ = false;  // it is in the poison log; written before other threads know the launch
  std::atomic<bool> failed_{false};
  std::atomic<bool> reads_poison_{false};
};

}  // namespace cox::detail
