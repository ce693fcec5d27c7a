#pragma once

#include <coxswain/collectives/nccl/nccl_communicator.hpp>
#include <coxswain/runtime/communication/communication_id.hpp>
#include <coxswain/servers/cuda/device/cuda_context.hpp>
#include <coxswain/servers/cuda/driver/driver_object.hpp>
#include <coxswain/servers/cuda/peer/peer_kernels.hpp>

#include <cstddef>
#include <exception>
#include <memory>
#include <utility>
#include <vector>

namespace cox::detail {

/// The resources of an NcclCommunicator on GPUs: their contexts, a stream and a small scratch buffer of each, and the
/// peer kernels for small data. Any thread.
class CudaNcclResources final : public NcclDeviceResources {
 public:
  /// `ordinals`: of the devices of this process, by rank. Blocks while contexts are opened. Throws CudaError,
  /// std::bad_alloc.
  CudaNcclResources(const CommunicationId& devices, const std::vector<int>& ordinals);
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

  /// Null if the communicator has devices of other processes, the setting collectives.peer_memory is false, the GPUs
  /// have no access to each other's memory, or there is no memory for it.
  [[nodiscard]] PeerKernels* peer_kernels() const noexcept { return peer_kernels_.get(); }
  /// Why peer_kernels() is null: a CollectiveError Unsupported; null if it is not.
  [[nodiscard]] const std::exception_ptr& why_no_peer_kernels() const noexcept { return why_no_peer_kernels_; }

 private:
  struct Rank {
    DriverStream stream;
    DriverMemory scratch;
  };
  explicit CudaNcclResources(std::vector<std::shared_ptr<CudaContext>> contexts)
      : contexts_(std::move(contexts)), ranks_(contexts_.size()) {}
  void make_peer_kernels(const CommunicationId& devices);

  std::vector<std::shared_ptr<CudaContext>> contexts_;
  std::vector<Rank> ranks_;
  std::shared_ptr<PeerKernels> peer_kernels_;
  std::exception_ptr why_no_peer_kernels_;
};

}  // namespace cox::detail
