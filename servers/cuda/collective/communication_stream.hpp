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

/// A rank's part in a collective operation, done by NCCL or by our own peer kernels.
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

  StreamPositions others_;                       // those of `waits` that do not precede it on the communication stream
  bool is_launched_or_failed_ = false;           // launched or aborted
  std::shared_ptr<NcclOperation> operation_;     // from the release until launched or aborted
  std::shared_ptr<NcclDeviceResources> opened_;  // what its kernels use; set when it is issued
  std::shared_ptr<CudaEvent> event_;             // its completion; set when it is launched
  std::uint32_t count_ = 0;                      // value of the kernel counter, for a part done by peer kernels
  CUresult result_ = CUDA_SUCCESS;               // first failure of its kernel launches
};

/// The communication stream of a device, shared by all its communicators. Parts are enqueued in the sequencer's order.
/// Device thread only, except that another thread may destroy it after the device.
class CommunicationStream : public std::enable_shared_from_this<CommunicationStream> {
 public:
  explicit CommunicationStream(CudaStreams& streams) noexcept : streams_(streams) {}
  CommunicationStream(const CommunicationStream&) = delete;
  CommunicationStream& operator=(const CommunicationStream&) = delete;

  /// Enqueues the next released part. It is launched when everything that it waits for has been issued.
  void submit(const std::shared_ptr<NcclRankOperation>& part) noexcept;

 private:
  friend class NcclRankOperation;

  void open();
  void launch_kernels(const std::shared_ptr<NcclRankOperation>& part);
  void note_launched() noexcept;
  void note(std::span<const std::shared_ptr<NcclRankOperation>> parts);
  [[nodiscard]] std::shared_ptr<CudaEvent> end_of_all();
  // The last position of a slot whose part was enqueued on this stream.
  [[nodiscard]] std::uint64_t& taken_of(StreamSlot slot) {
    const auto index = static_cast<std::size_t>(slot);
    if (index >= taken_.size()) taken_.resize(index + 1);
    return taken_[index];
  }

  CudaStreams& streams_;
  std::shared_ptr<CudaStream> stream_;      // created by the first part
  std::vector<std::uint64_t> taken_;        // by slot
  std::shared_ptr<CudaEvent> last_end_;     // completion of the last launched part
  CommunicatorNumber last_communicator_{};  // communicator of that part
  std::uint32_t counted_ = 0;               // number of parts done by peer kernels so far
  std::vector<std::shared_ptr<NcclRankOperation>>
      unlaunched_;  // parts whose kernels are all in the launch batch, not given to the driver yet
  struct {
    std::uint64_t issued = 0;
    std::uint64_t issued_on_native = 0;
  } last_unlaunched_;  // position of the last of them
  // Empty between calls; they keep their capacity:
  std::vector<std::shared_ptr<NcclRankOperation>> noted_;
  std::vector<NcclClique::Part> launched_;
  std::vector<std::shared_ptr<CudaEvent>> awaited_;
};

}  // namespace cox::detail
