#pragma once

#include <coxswain/collectives/nccl/nccl_operation.hpp>
#include <coxswain/device_handle/base/device_id.hpp>
#include <coxswain/runtime/communication/collective_request.hpp>
#include <coxswain/runtime/communication/communication_id.hpp>
#include <coxswain/runtime/communication/reduce_operation.hpp>
#include <coxswain/runtime/tensor/element_type.hpp>
#include <coxswain/servers/cuda/device/cuda_context.hpp>
#include <coxswain/servers/cuda/driver/driver_object.hpp>
#include <coxswain/servers/cuda/kernel/cuda_kernel.hpp>
#include <coxswain/servers/cuda/peer/peer_kernel_limits.hpp>
#include <coxswain/servers/cuda/peer/peer_kernels_source.hpp>
#include <coxswain/servers/cuda/peer/peer_memory.hpp>
#include <coxswain/servers/cuda/stream/launch_batch.hpp>

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

namespace cox::detail {

/// all_reduce, reduce, all_gather, reduce_scatter and broadcast of small data by our own kernels, which write into the
/// memory of the other GPUs; an all_reduce may also be of a group of tensors that are small together. Up to which
/// sizes, says PeerKernelLimits. They also do the reductions that NCCL does not do, or not in the order of ranks. One
/// object serves the ranks of one communicator that belong to this process; its operations are launched in one order on
/// all ranks. Any thread.
class PeerKernels {
 public:
  static constexpr std::size_t max_ranks = 8;

  /// Whether NCCL does not do the operation, or not exactly: reductions of 16-bit integers, and means of integers; if
  /// `is_reproducible` (Communicator), also reductions of floating-point elements. Such an operation is done here,
  /// whatever its size, if has_peer_kernels() for its type; else it is refused.
  [[nodiscard]] static bool is_needed(const CollectiveRequest& request, bool is_reproducible) noexcept;
  /// The algorithm for these operations; Nccl: they are not done here. It does not depend on buffers, so it is the same
  /// on all ranks.
  [[nodiscard]] static CollectiveAlgorithm algorithm_of(const CollectiveRequests& requests, std::size_t world_size,
                                                        bool is_reproducible) noexcept;
  [[nodiscard]] static CollectiveAlgorithm algorithm_of(const CollectiveRequests& requests, std::size_t world_size,
                                                        bool is_reproducible, const PeerKernelLimits& limits) noexcept;

  [[nodiscard]] static PeerKernelCode code_of(const CollectiveRequest& request) noexcept;

  /// Allocates memory on all devices, whose contexts are open, and makes it accessible to the others. Returns null if
  /// they have no access to each other's memory. Throws CudaError, std::bad_alloc: also if a device has no memory left.
  [[nodiscard]] static std::shared_ptr<PeerKernels> make(const CommunicationId& devices,
                                                         const std::vector<std::shared_ptr<CudaContext>>& contexts);
  /// `devices` and `contexts`: by rank. Precondition: the devices have access to each other's memory. Ranks may share a
  /// device if the blocks of all these ranks can be resident on it at the same time. Throws CudaError, std::bad_alloc.
  PeerKernels(std::span<const DeviceId> devices, std::vector<std::shared_ptr<CudaContext>> contexts);
  /// The same with other limits than peer_kernel_limits(), for measurements and tests. Throws std::invalid_argument if
  /// they exceed the memory.
  PeerKernels(std::span<const DeviceId> devices, std::vector<std::shared_ptr<CudaContext>> contexts,
              const PeerKernelLimits& limits);
  /// A rank of this process.
  struct OwnRank {
    std::size_t rank;  ///< in the communicator
    DeviceId device;
    std::shared_ptr<CudaContext> context;
  };
  /// Of a communicator that may have ranks of other processes. `memory`: of all ranks, memory_size() bytes each, all
  /// zeros, accessible to the devices of `own`. Throws CudaError, std::bad_alloc, std::invalid_argument as above.
  PeerKernels(std::vector<OwnRank> own, std::vector<std::shared_ptr<PeerMemory>> memory,
              const PeerKernelLimits& limits);
  [[nodiscard]] static std::size_t memory_size(std::size_t ranks) noexcept { return Layout(ranks).size; }
  PeerKernels(const PeerKernels&) = delete;
  PeerKernels& operator=(const PeerKernels&) = delete;
  /// Precondition: all launched kernels have completed.
  ~PeerKernels();

  /// Whether the kernels of such operations were compiled when the library was built.
  [[nodiscard]] bool are_embedded(const CollectiveRequest& request) const;
  /// Loads the kernels of such operations on all devices: those that were compiled when the library was built, if the
  /// devices can run them, else those that NVRTC compiles now. The object that `quiesce` returns is held while they are
  /// loaded, since loading may wait for running kernels. Blocks for all of that, the first time. While
  /// another call prepares other kernels, it also blocks for that, unless these kernels are prepared already. A failure
  /// to compile or load is logged and kept for failure(), not thrown. Throws what `quiesce` throws, std::bad_alloc.
  void prepare(const CollectiveRequest& request, const std::function<std::shared_ptr<void>()>& quiesce);
  /// Whether prepare() has completed for such operations, with success or not.
  [[nodiscard]] bool prepared(const CollectiveRequest& request) const noexcept { return find(request) != nullptr; }
  /// Whether such an operation can be launched: prepare() has succeeded on all devices.
  [[nodiscard]] bool usable(const CollectiveRequest& request) const noexcept {
    const Kernels* const found = find(request);
    return found != nullptr && found->usable;
  }
  /// The failure of prepare() to compile or load the kernels; null if they are usable(). Precondition: prepared().
  [[nodiscard]] std::exception_ptr failure(const CollectiveRequest& request) const noexcept {
    return find(request)->failure;
  }

  using Launch = std::function<void(const KernelLaunch&)>;
  /// The first action of a kernel: it sets a counter word (CudaEvents::counter), after all earlier work of its stream
  /// has completed.
  struct Count {
    CUdeviceptr counter = 0;
    std::uint32_t value = 0;
  };
  /// Calls `launch` for each kernel of the rank's part, in order. Kernels are numbered from 1 for each algorithm, in
  /// the same way on all ranks. `launched`: the number of kernels of this algorithm so far; the call adds those of this
  /// part. Throws what `launch` throws.
  void launch(CollectiveAlgorithm algorithm, std::size_t rank, const NcclCalls& calls, std::uint32_t& launched,
              const Count& count, const Launch& launch) const;
  /// Makes kernels that wait for other ranks return, with undefined results.
  void abort() noexcept;

 private:
  /// struct Peers of the kernels, with the maximum number of entries: the kernels read the first ones, one for each
  /// rank.
  using Peers = std::array<CUdeviceptr, max_ranks>;
  struct Kernels {
    std::vector<CudaKernel> kept;                                             // keeps the functions below
    std::array<std::vector<CUfunction>, peer_kernel_names.size()> functions;  // by PeerKernel, then as own_
    bool usable = false;                                                      // all kernels were loaded
    std::exception_ptr failure;
  };
  /// Offsets in a rank's memory: lines, flags, and data before flags, each of even and of odd epochs; results of two
  /// shots.
  struct Layout {
    explicit Layout(std::size_t ranks) noexcept;

    std::size_t lines_of_epoch;
    std::size_t flags;
    std::size_t inputs;
    std::size_t results;
    std::size_t size;
  };
  /// Launches the kernels of a rank's part.
  struct Part;

  using Image = std::vector<std::byte>;
  /// The image that nvcc compiled when the library was built, for each rank of this process; empty if there is none
  /// that all devices can run.
  [[nodiscard]] std::vector<Image> embedded_images(const std::string& source) const;
  /// The images that NVRTC compiles by rank of this process, each for the architecture of its device. Throws
  /// LaunchError.
  [[nodiscard]] std::vector<Image> compile(const std::string& source) const;
  /// Loads the images on the devices of their ranks while it holds what `quiesce` returns. Replaces the functions of
  /// `into`, which is usable if the call returns null; otherwise it returns the failure. Throws what `quiesce` throws.
  [[nodiscard]] std::exception_ptr load(Kernels& into, const PeerKernelCode& code, const std::vector<Image>& images,
                                        const std::function<std::shared_ptr<void>()>& quiesce) const;
  /// Loads the image on the device, and adds its functions to `into`. Throws LaunchError, CudaError.
  void load(Kernels& into, const PeerKernelCode& code, const Image& image, DeviceId device) const;
  [[nodiscard]] unsigned blocks_for(std::size_t units) const noexcept;
  [[nodiscard]] Peers all_at(std::size_t offset) const noexcept;
  static constexpr std::size_t reductions = reduce_operation_names.size() * element_types.size();
  [[nodiscard]] static std::size_t index_of(const CollectiveRequest& request) noexcept {
    const PeerKernelCode code = code_of(request);
    if (!code.reduces) return reductions;
    return static_cast<std::size_t>(code.operation) * element_types.size() + static_cast<std::size_t>(code.type);
  }
  [[nodiscard]] const Kernels* find(const CollectiveRequest& request) const noexcept {
    return kernels_[index_of(request)].load(std::memory_order_acquire);
  }

  [[nodiscard]] std::size_t world_size() const noexcept { return memory_.size(); }

  const std::vector<OwnRank> own_;
  const std::vector<std::shared_ptr<PeerMemory>> memory_;  // of all ranks
  const PeerKernelLimits limits_;
  const Layout layout_;
  std::vector<std::size_t> place_;  // by rank: of a rank of this process in own_
  DriverHostMemory abort_flag_;     // a word of page-locked memory that all devices can read
  std::mutex mutex_;
  std::condition_variable changed_;                   // preparing_ became false
  bool preparing_ = false;                            // guarded by mutex_: a call of prepare() compiles or loads
  std::vector<std::unique_ptr<const Kernels>> kept_;  // guarded by mutex_
  // By operation and type, then those that do not reduce. The release store in prepare() pairs with the acquire load in
  // find(): a thread that sees the pointer sees the kernels.
  std::array<std::atomic<const Kernels*>, reductions + 1> kernels_{};
};

}  // namespace cox::detail
