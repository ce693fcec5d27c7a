#pragma once

#include <coxswain/collectives/nccl_clique.hpp>
#include <coxswain/collectives/nccl_operation.hpp>
#include <coxswain/servers/cuda/detail/collective_part.hpp>
#include <coxswain/servers/cuda/detail/stream_queue.hpp>

#include <cstddef>
#include <cstdint>
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
  void launch_kernels(const IssueTarget& target);
  void note_result(CUresult result) noexcept;
  void end_launch() noexcept;
  void note_launch(const std::shared_ptr<CudaEvent>& event);
  void fail_launch(const std::exception_ptr& error) noexcept;
  void give_up(const std::exception_ptr& error) noexcept;

  std::shared_ptr<NcclOperation> operation_;  // from its turn until it has been launched
  bool over_ = false;                         // it has been launched, or given up
  // From when it is issued until it has been launched:
  std::shared_ptr<OpenNcclDevices> opened_;  // what its kernels use
  std::shared_ptr<CudaEvent> event_;         // its end
  StreamQueue* queue_ = nullptr;             // that it is issued on, with
  std::uint64_t issued_ = 0;                 // so much
  std::uint64_t issued_on_native_ = 0;       // and that on its stream of the driver
  CUresult result_ = CUDA_SUCCESS;           // of its kernels' launches: the first failure
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

  // How far the parts of a slot have come to the line.
  [[nodiscard]] std::uint64_t& taken_of(StreamSlot slot) {
    const auto index = static_cast<std::size_t>(slot);
    if (index >= taken_.size()) taken_.resize(index + 1);
    return taken_[index];
  }

  CudaStreams& streams_;
  std::shared_ptr<CudaStream> stream_;               // made by the first part
  std::vector<std::uint64_t> taken_;                 // by slot
  std::shared_ptr<CudaEvent> last_end_;              // of what was launched
  std::vector<std::shared_ptr<CudaEvent>> awaited_;  // by the part that is being noted: its memory is used again
};

}  // namespace cox::detail
