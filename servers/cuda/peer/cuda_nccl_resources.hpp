#pragma once

#include <coxswain/collectives/nccl/nccl_communicator.hpp>
#include <coxswain/runtime/communication/communication_id.hpp>
#include <coxswain/servers/cuda/device/cuda_context.hpp>
#include <coxswain/servers/cuda/driver/driver_object.hpp>
#include <coxswain/servers/cuda/peer/cuda_peer_exchange.hpp>
#include <coxswain/servers/cuda/peer/peer_kernels.hpp>

#include <cstddef>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace cox::detail {

/// The resources of an NcclCommunicator on GPUs: their contexts, a stream and a small scratch buffer of each, and the
/// peer kernels for small data. Any thread.
class CudaNcclResources final : public NcclDeviceResources {
 public:
  /// `ordinals`: of the devices of this process, by rank. `is_reproducible`: of the communicator. Blocks while contexts
  /// are opened. Throws CudaError, std::bad_alloc.
  CudaNcclResources(const CommunicationId& devices, const std::vector<int>& ordinals, bool is_reproducible);
  /// Precondition: all launched work has completed. May wait for running kernels of any communicator (T1).
  ~CudaNcclResources() override;

  void abort() noexcept override {
    if (peer_kernels_ != nullptr) peer_kernels_->abort();
  }
  [[nodiscard]] CUstream_st* stream(std::size_t rank) const noexcept override { return ranks_[rank].stream.get(); }
  [[nodiscard]] void* scratch(std::size_t rank) const noexcept override;
  [[nodiscard]] std::shared_ptr<void> make_current(std::size_t rank) const override {
    return std::make_shared<CurrentContext>(*contexts_[rank]);
  }
  [[nodiscard]] bool is_idle(std::size_t rank) const override;
  void synchronize(std::size_t rank) const override;

  [[nodiscard]] int ctas() const noexcept override { return ctas_; }
  [[nodiscard]] PeerMemoryExchange* exchange() noexcept override { return exchange_.get(); }

  /// Null if the setting collectives.peer_memory is false, the GPUs have no access to each other's memory, or there is
  /// no memory for it. If the communicator has devices of several processes, null until they have agreed about it,
  /// which NCCL's creation includes, and then the same in all of them.
  [[nodiscard]] PeerKernels* peer_kernels() const noexcept { return peer_kernels_.get(); }
  /// Why peer_kernels() is null: a CollectiveError Unsupported; null if it is not.
  [[nodiscard]] const std::exception_ptr& why_no_peer_kernels() const noexcept { return why_no_peer_kernels_; }
  /// Whether there are kernels for the request, or can be: the same in all processes. Precondition: peer_kernels() is
  /// not null.
  [[nodiscard]] bool has_kernels_for(const CollectiveRequest& request) const;

 private:
  struct Rank {
    DriverStream stream;
    DriverMemory scratch;
  };
  explicit CudaNcclResources(std::vector<std::shared_ptr<CudaContext>> contexts)
      : contexts_(std::move(contexts)), ranks_(contexts_.size()) {}
  void make_peer_kernels(const CommunicationId& devices);
  void make_exchange(const CommunicationId& devices, bool is_reproducible);
  void take_result(CudaPeerExchange::Result result) noexcept;
  void refuse_peer_kernels(const std::string& why, const std::exception_ptr& cause = nullptr);

  std::vector<std::shared_ptr<CudaContext>> contexts_;
  std::vector<Rank> ranks_;
  int ctas_ = 0;
  std::shared_ptr<PeerKernels> peer_kernels_;
  std::exception_ptr why_no_peer_kernels_;
  bool can_compile_ = true;  // the peer kernels
  std::unique_ptr<CudaPeerExchange> exchange_;
};

}  // namespace cox::detail
