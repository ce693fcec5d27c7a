#pragma once

#include <coxswain/collectives/nccl_clique.hpp>
#include <coxswain/collectives/nccl_operation.hpp>
#include <coxswain/servers/cuda/detail/collective_part.hpp>
#include <coxswain/servers/cuda/detail/cuda_context.hpp>
#include <coxswain/servers/cuda/detail/stream_queue.hpp>

#include <deque>
#include <exception>
#include <memory>
#include <utility>

namespace cox::detail {

/// A rank's part in an operation that all ranks do together, by NCCL.
class NcclPart final : public CollectivePart, public std::enable_shared_from_this<NcclPart> {
 public:
  void take_turn(std::shared_ptr<void> shared) override;

  std::shared_ptr<NcclClique> clique;
  NcclCalls calls;

 private:
  friend class NcclLine;
  struct Turn;

  void issue(const IssueTarget& target) noexcept;
  void was_launched(const IssueTarget& target, const std::exception_ptr& failure) noexcept;
  void give_up(const std::exception_ptr& error) noexcept;

  std::shared_ptr<NcclOperation> operation_;
  bool issued_ = false;
};

/// The way of a device's operations to NCCL: all communicators share one stream, and the operations come to it in the
/// sequencer's order, whichever of them has to wait for NCCL. Device thread only, unless said otherwise.
class NcclLine : public std::enable_shared_from_this<NcclLine> {
 public:
  NcclLine(CudaStreams& streams, std::shared_ptr<Doorbell> doorbell)
      : streams_(streams), doorbell_(std::move(doorbell)) {}
  NcclLine(const NcclLine&) = delete;
  NcclLine& operator=(const NcclLine&) = delete;
  /// All work is complete.
  ~NcclLine();

  /// It is the turn of the next.
  void add(std::shared_ptr<NcclPart> part);
  /// Memory of the device that means nothing, of 512 bytes: for operations that have none. Throws CudaError.
  [[nodiscard]] void* scratch();

 private:
  friend class NcclPart;

  void advance();
  void submit(const std::shared_ptr<NcclPart>& part);
  /// The next may come. Any thread.
  void go_on();

  CudaStreams& streams_;
  const std::shared_ptr<Doorbell> doorbell_;
  std::shared_ptr<CudaStream> stream_;  // made by the first operation
  std::deque<std::shared_ptr<NcclPart>> turns_;
  bool held_ = false;                    // the first waits for NCCL
  std::shared_ptr<CudaEvent> last_end_;  // of what was launched
  CUdeviceptr scratch_ = 0;
};

}  // namespace cox::detail
