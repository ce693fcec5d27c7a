#pragma once

#include <coxswain/collectives/nccl/nccl_device_resources.hpp>
#include <coxswain/collectives/nccl/nccl_operation.hpp>
#include <coxswain/collectives/watch/communicator_number.hpp>
#include <coxswain/servers/cuda/collective/cuda_rank_launch.hpp>
#include <coxswain/servers/cuda/driver/driver.hpp>
#include <coxswain/servers/cuda/stream/cuda_streams.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace cox::detail {

/// A rank's launch of a collective operation, done by NCCL or by our own peer kernels.
class CudaCollectiveLaunch final : public CudaRankLaunch, public NcclLaunch {
 public:
  using CudaRankLaunch::CudaRankLaunch;

  /// See CudaRankLaunch::fail.
  void fail(const std::exception_ptr& error) noexcept override { CudaRankLaunch::fail(error); }
  /// Queues the launch on the communication stream `stream`. Device thread.
  void queue(CudaStream& stream) noexcept { queue_on(stream, others); }
  /// Aborts the operation on all ranks, since they wait for this one, possibly in kernels on their devices. Idempotent.
  /// Device thread.
  void abort(const std::exception_ptr& error) noexcept override { abort_after(error, nullptr); }
  /// As abort(), if some kernels of the launch may have been given to the driver.
  void fail_launch(const std::exception_ptr& error) noexcept;
  /// The launch completes with `end`. `error`: null, or the failure of the operation. Device thread.
  void close(const std::exception_ptr& error, const std::shared_ptr<CudaEvent>& end) noexcept;
  /// The error of `result`.
  [[nodiscard]] std::exception_ptr launch_failure() const noexcept;

  NcclCalls calls;
  // For CommunicationStream:
  StreamPositions others;                       ///< those of `waits` that do not precede it on the communication stream
  std::shared_ptr<NcclDeviceResources> opened;  ///< what its kernels use; set when it is issued
  std::shared_ptr<CudaEvent> event;             ///< its completion; set when it is launched
  std::uint32_t count = 0;                      ///< value of the kernel counter, if peer kernels do it
  CUresult result = CUDA_SUCCESS;               ///< first failure of its kernel launches

 private:
  /// Any thread; device thread if CollectiveSubmission::on_launch_thread, which all of them are.
  void on_release(std::shared_ptr<void> shared) override;
  void on_posted() noexcept override;
  void issue(const IssueTarget& target) noexcept override;
  [[nodiscard]] std::string name() const override { return to_string(calls.front().request, calls.size()); }
  void abort_after(const std::exception_ptr& error, const std::shared_ptr<CudaEvent>& end) noexcept;

  bool is_launched_or_failed_ = false;  // launched or aborted
};

/// The communication stream of a device, shared by its ranks in all communicators. Launches are enqueued in the
/// sequencer's order. Device thread only, except that another thread may destroy it after the device.
class CommunicationStream : public std::enable_shared_from_this<CommunicationStream> {
 public:
  using Launch = std::shared_ptr<CudaCollectiveLaunch>;

  explicit CommunicationStream(CudaStreams& streams) noexcept : streams_(streams) {}
  CommunicationStream(const CommunicationStream&) = delete;
  CommunicationStream& operator=(const CommunicationStream&) = delete;

  /// Enqueues the next released launch. It is issued when everything that it waits for has been issued.
  void submit(const Launch& launch) noexcept;

  // For launches that are issued:

  /// Whether launches of other ranks than this one are in the launch batch.
  [[nodiscard]] bool has_unlaunched_of_others(const CudaRank& rank) const noexcept;
  /// Adds the kernels of the launch to the launch batch, which the driver receives together with those of later ones.
  void launch_kernels(const Launch& launched);
  /// `launches`: of one rank, given to the driver, with their completion events. Passes them to NCCL's communicators,
  /// which watch them, and closes them.
  void note(std::span<const Launch> launches);
  /// The completion of everything that has been issued on the stream.
  [[nodiscard]] std::shared_ptr<CudaEvent> end_of_all();

 private:
  void open();
  void note_launched() noexcept;
  // The last position of a slot whose launch was enqueued on this stream.
  [[nodiscard]] std::uint64_t& taken_of(StreamSlot slot) {
    const auto index = static_cast<std::size_t>(slot);
    if (index >= taken_.size()) taken_.resize(index + 1);
    return taken_[index];
  }

  CudaStreams& streams_;
  std::shared_ptr<CudaStream> stream_;      // created by the first launch
  std::vector<std::uint64_t> taken_;        // by slot
  std::shared_ptr<CudaEvent> last_end_;     // completion of the last launch
  CommunicatorNumber last_communicator_{};  // communicator of that launch
  std::uint32_t counted_ = 0;               // number of launches done by peer kernels so far
  std::vector<Launch> unlaunched_;  // those whose kernels are all in the launch batch, not given to the driver yet
  // The launch that is being added, if its first kernels are in the batch, or were given to the driver; else null.
  const CudaCollectiveLaunch* next_ = nullptr;
  struct {
    std::uint64_t issued = 0;
    std::uint64_t issued_on_native = 0;
  } last_unlaunched_;  // position of the last of them
  // Empty between calls; they keep their capacity:
  std::vector<Launch> noted_;
  std::vector<std::shared_ptr<NcclLaunch>> launched_;
  std::vector<std::shared_ptr<CudaEvent>> awaited_;
};

}  // namespace cox::detail
