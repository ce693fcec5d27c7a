#pragma once

#include <coxswain/collectives/nccl_operation.hpp>
#include <coxswain/servers/cuda/detail/collective_part.hpp>
#include <coxswain/servers/cuda/detail/stream_queue.hpp>

#include <exception>
#include <memory>
#include <vector>

namespace cox::detail {

/// A rank's part in an operation that all ranks do together: by NCCL, or by kernels of our own.
class NcclPart final : public CollectivePart, public std::enable_shared_from_this<NcclPart> {
 public:
  /// Device thread.
  void take_turn(std::shared_ptr<void> shared) override;

  NcclCalls calls;

 private:
  friend class NcclLine;
  struct Turn;

  void issue(const IssueTarget& target) noexcept;
  void launch(const NcclOperation& operation, const IssueTarget& target);
  void note_launch(const std::shared_ptr<NcclOperation>& operation, const IssueTarget& target);
  void give_up(const std::exception_ptr& error) noexcept;

  std::shared_ptr<NcclOperation> operation_;  // from its turn until it is issued
  bool over_ = false;                         // it has been launched, or given up
};

/// The communication stream of a device, which all its communicators share: parts come to it in the sequencer's order.
/// Device thread only.
class NcclLine {
 public:
  explicit NcclLine(CudaStreams& streams) noexcept : streams_(streams) {}
  NcclLine(const NcclLine&) = delete;
  NcclLine& operator=(const NcclLine&) = delete;

  /// It is the turn of the next part: it is launched when what it waits for has been issued.
  void submit(const std::shared_ptr<NcclPart>& part) noexcept;

 private:
  friend class NcclPart;

  CudaStreams& streams_;
  std::shared_ptr<CudaStream> stream_;               // made by the first part
  std::shared_ptr<CudaEvent> last_end_;              // of what was launched
  std::vector<std::shared_ptr<CudaEvent>> awaited_;  // by the part that is being noted: its memory is used again
};

}  // namespace cox::detail
