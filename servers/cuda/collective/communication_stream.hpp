#pragma once

#include <coxswain/collectives/nccl/nccl_clique.hpp>
#include <coxswain/collectives/nccl/nccl_operation.hpp>
#include <coxswain/servers/cuda/collective/rank_operation.hpp>
#include <coxswain/servers/cuda/stream/cuda_streams.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace cox::detail {

/// A rank's part in an operation that all ranks do together: by NCCL, or by kernels of our own.
class NcclRankOperation final : public RankOperation,
                                public NcclWaiter,
                                public std::enable_shared_from_this<NcclRankOperation> {
 public:
  using RankOperation::RankOperation;
  /// Device thread.
  void on_release(std::shared_ptr<void> shared) override;
  void fail(const std::exception_ptr& error) noexcept override { RankOperation::fail(error); }

  NcclCalls calls;

 private:
  friend class CommunicationStream;
  friend class LaunchGuard<NcclRankOperation>;

  [[nodiscard]] std::string name() const override { return to_string(calls.front().request, calls.size()); }
  [[nodiscard]] std::shared_ptr<LoggedOperation> shared_self() override { return shared_from_this(); }
  void issue(const std::shared_ptr<NcclRankOperation>& self, const IssueTarget& target) noexcept;
  void fail_launch(const std::exception_ptr& error) noexcept;
  [[nodiscard]] std::exception_ptr launch_failure() const noexcept;
  void abort(const std::exception_ptr& error, const std::shared_ptr<CudaEvent>& end = nullptr) noexcept;
  void close(const std::exception_ptr& error, const std::shared_ptr<CudaEvent>& event) noexcept;

  StreamPositions others_;              // of its waits: those that are not on its line before it
  bool is_launched_or_failed_ = false;  // it has been launched, or given up; until then, from its turn:
  std::shared_ptr<NcclOperation> operation_;
  std::shared_ptr<NcclDeviceResources> opened_;  // what its kernels use, from when it is issued
  std::shared_ptr<CudaEvent> event_;             // its end, from when it has been launched
  std::uint32_t count_ = 0;                      // of the parts on the line, if it is one of kernels
  CUresult result_ = CUDA_SUCCESS;               // of its kernels' launches: the first failure
};

/// The communication stream of a device, which all its communicators share: parts come to it in the sequencer's order.
/// Device thread only; it may be destroyed by another, after the device.
class CommunicationStream : public std::enable_shared_from_this<CommunicationStream> {
 public:
  explicit CommunicationStream(CudaStreams& streams) noexcept : streams_(streams) {}
  CommunicationStream(const CommunicationStream&) = delete;
  CommunicationStream& operator=(const CommunicationStream&) = delete;

  /// It is the turn of the next part: it is launched when what it waits for has been issued.
  void submit(const std::shared_ptr<NcclRankOperation>& part) noexcept;

 private:
  friend class NcclRankOperation;

  void open();
  void launch_kernels(const std::shared_ptr<NcclRankOperation>& part);
  void note_launched() noexcept;
  void note(std::span<const std::shared_ptr<NcclRankOperation>> parts);
  [[nodiscard]] std::shared_ptr<CudaEvent> end_of_all();
  // How far the parts of a slot have come to the line.
  [[nodiscard]] std::uint64_t& taken_of(StreamSlot slot) {
    const auto index = static_cast<std::size_t>(slot);
    if (index >= taken_.size()) taken_.resize(index + 1);
    return taken_[index];
  }

  CudaStreams& streams_;
  std::shared_ptr<CudaStream> stream_;      // made by the first part
  std::vector<std::uint64_t> taken_;        // by slot
  std::shared_ptr<CudaEvent> last_end_;     // of what was launched
  CommunicatorNumber last_communicator_{};  // whose that is
  std::uint32_t counted_ = 0;               // parts of kernels, so far
  std::vector<std::shared_ptr<NcclRankOperation>>
      unlaunched_;  // with all their kernels, which the driver has not been given
  struct {
    std::uint64_t issued = 0;
    std::uint64_t issued_on_native = 0;
  } last_unlaunched_;  // where the last of them is
  // Empty, with room:
  std::vector<std::shared_ptr<NcclRankOperation>> noted_;
  std::vector<NcclClique::Part> launched_;
  std::vector<std::shared_ptr<CudaEvent>> awaited_;
};

}  // namespace cox::detail
