#pragma once

#include <coxswain/collectives/nccl/nccl_clique.hpp>
#include <coxswain/collectives/nccl/nccl_operation.hpp>
#include <coxswain/servers/cuda/collective/rank_operation.hpp>

#include <cstdint>
#include <exception>
#include <memory>

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

  void issue(const IssueTarget& target) noexcept;
  void fail_launch(const std::exception_ptr& error) noexcept;
  [[nodiscard]] std::exception_ptr launch_failure() const noexcept;
  void give_up(const std::exception_ptr& error, const std::shared_ptr<CudaEvent>& end = nullptr) noexcept;
  void close(const std::exception_ptr& error, const std::shared_ptr<CudaEvent>& event) noexcept;

  StreamPositions others_;  // of its waits: those that are not on its line before it
  bool over_ = false;       // it has been launched, or given up; until then, from its turn:
  std::shared_ptr<NcclOperation> operation_;
  std::shared_ptr<NcclDeviceResources> opened_;  // what its kernels use, from when it is issued
  std::shared_ptr<CudaEvent> event_;             // its end, from when it has been launched
  std::uint32_t count_ = 0;                      // of the parts on the line, if it is one of kernels
  CUresult result_ = CUDA_SUCCESS;               // of its kernels' launches: the first failure
};

}  // namespace cox::detail
