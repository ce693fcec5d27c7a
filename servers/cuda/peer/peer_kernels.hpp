#pragma once

#include <coxswain/collectives/nccl/nccl_operation.hpp>
#include <coxswain/device_handle/base/device_id.hpp>
#include <coxswain/runtime/communication/collective_request.hpp>
#include <coxswain/runtime/communication/communication_id.hpp>
#include <coxswain/runtime/communication/reduce_operation.hpp>
#include <coxswain/runtime/tensor/element_type.hpp>
#include <coxswain/servers/cuda/device/cuda_context.hpp>
#include <coxswain/servers/cuda/kernel/cuda_kernel.hpp>
#include <coxswain/servers/cuda/memory/cuda_storage.hpp>
#include <coxswain/servers/cuda/stream/launch_batch.hpp>

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

namespace cox::detail {

/// all_reduce of small data, or of a group of tensors that are small together, all_gather, reduce_scatter and broadcast
/// of small data, by kernels of our own, which write into the memory of the other GPUs: from about 1 MiB on sooner
/// there than NCCL. And reductions that NCCL does not do. Made for the ranks of one communicator; its operations are
/// launched in one order on all of them. Any thread.
class PeerKernels {
 public:
  static constexpr std::size_t max_ranks = 8;
  /// Bytes at most: of one shot (data goes to all ranks, in one meeting), and of two (each rank reduces a share).
  static constexpr std::size_t max_one_shot_bytes = std::size_t{64} << 10U;
  static constexpr std::size_t max_two_shots_bytes = std::size_t{8} << 20U;
  /// Bytes at most of a broadcast: its root writes them to each other rank.
  static constexpr std::size_t max_broadcast_bytes = std::size_t{1} << 20U;

  /// Whether NCCL does not do such an operation, or not exactly: 16-bit integers, and the mean of integers. It is done
  /// here then, whatever its size.
  [[nodiscard]] static bool is_needed(const CollectiveRequest& request) noexcept;
  /// How operations are done; Nccl: not here. The same on all ranks, whatever their buffers.
  [[nodiscard]] static CollectiveAlgorithm algorithm_of(const CollectiveRequests& requests,
                                                        std::size_t world_size) noexcept;

  /// What the code for such operations is compiled for: that of those which do not reduce has no type.
  using Code = std::pair<ElementType, ReduceOperation>;
  [[nodiscard]] static Code code_of(const CollectiveRequest& request) noexcept;

  /// Takes memory of all devices, whose contexts are open, and makes it known to the others. Null where they cannot
  /// reach each other, or there is no memory. Throws CudaError, std::bad_alloc.
  [[nodiscard]] static std::shared_ptr<PeerKernels> make(const CommunicationId& devices,
                                                         const std::vector<std::shared_ptr<CudaContext>>& contexts);
  /// The same by rank, of devices that reach each other. Ranks may share a device that has room for the blocks of all
  /// of them at a time.
  PeerKernels(std::span<const DeviceId> devices, std::vector<std::shared_ptr<CudaContext>> contexts);
  PeerKernels(const PeerKernels&) = delete;
  PeerKernels& operator=(const PeerKernels&) = delete;
  /// All that was launched has ended.
  ~PeerKernels();

  /// Compiles the kernels of such operations and loads them on all devices, while what `quiesce` returns is held:
  /// loading may wait for running kernels. Blocks for all that, the first time; while other kernels are prepared, only
  /// if these are not. What hinders it is logged. Throws what `quiesce` throws, std::bad_alloc.
  void prepare(const CollectiveRequest& request, const std::function<std::shared_ptr<void>()>& quiesce);
  /// Whether that has been done.
  [[nodiscard]] bool prepared(const CollectiveRequest& request) const noexcept { return find(request) != nullptr; }
  /// Whether such an operation can be launched: it has been prepared, and that has succeeded on all devices.
  [[nodiscard]] bool usable(const CollectiveRequest& request) const noexcept {
    const Kernels* const found = find(request);
    return found != nullptr && found->usable;
  }

  using Launch = std::function<void(const KernelLaunch&)>;
  /// What a kernel does first: it sets a word (CudaEvents::counter), behind all that comes before it on its stream.
  struct Count {
    CUdeviceptr counter = 0;
    std::uint32_t value = 0;
  };
  /// Calls `launch` for each kernel of the rank's part, in their order. They are numbered on all ranks alike, for each
  /// way from 1. `launched`: how many there were; those of this part are added. Throws what `launch` throws.
  void launch(CollectiveAlgorithm algorithm, std::size_t rank, const NcclCalls& calls, std::uint32_t& launched,
              const Count& count, const Launch& launch) const;
  /// Kernels that wait for other ranks end, with whatever they have.
  void abort() noexcept;

 private:
  /// The kernels' struct Peers, with as many as there can be: the kernels take the first of them.
  using Peers = std::array<CUdeviceptr, max_ranks>;
  struct Kernels {
    std::vector<CudaKernel> kept;  // whose functions these are, by rank:
    std::vector<CUfunction> one_shots;
    std::vector<CUfunction> two_shots;
    std::vector<CUfunction> two_shot_groups;
    std::vector<CUfunction> reduce_scatters;
    std::vector<CUfunction> all_gathers;
    std::vector<CUfunction> broadcasts;
    bool usable = false;  // all could be compiled and loaded
  };
  /// The memory of a rank, which all can reach.
  struct Rank {
    /// Throws CudaError, std::bad_alloc.
    explicit Rank(const std::shared_ptr<CudaContext>& context);
    Rank(const Rank&) = delete;
    Rank& operator=(const Rank&) = delete;
    ~Rank();

    CudaStorage storage;
    const CUdeviceptr base;
  };

  /// By rank: each for its device's architecture.
  [[nodiscard]] std::vector<std::vector<std::byte>> compile(const CollectiveRequest& request) const;
  /// Adds the functions of the image, which is of that code, on the rank's device.
  void load(Kernels& into, Code code, std::span<const std::byte> image, std::size_t rank) const;
  void launch_whole(std::size_t rank, const NcclCall& call, std::uint32_t& launched, const Count& count,
                    const Launch& launch) const;
  void launch_one_shot(CUfunction function, std::size_t rank, const NcclCall& call, std::uint32_t epoch,
                       const Count& count, const Launch& launch) const;
  template <class Data>
  void launch_two_shots(CUfunction function, std::size_t rank, const Data& data, std::size_t units, std::uint32_t epoch,
                        const Count& count, const Launch& launch) const;
  void launch_blocks(std::size_t rank, const NcclCall& call, std::uint32_t epoch, const Count& count,
                     const Launch& launch) const;
  [[nodiscard]] Peers all_at(std::size_t offset) const noexcept;
  [[nodiscard]] static std::size_t index_of(const CollectiveRequest& request) noexcept {
    const auto [type, operation] = code_of(request);
    return static_cast<std::size_t>(operation) * element_types.size() + static_cast<std::size_t>(type);
  }
  [[nodiscard]] const Kernels* find(const CollectiveRequest& request) const noexcept {
    return kernels_[index_of(request)].load(std::memory_order_acquire);
  }

  const std::vector<DeviceId> devices_;
  const std::vector<std::shared_ptr<CudaContext>> contexts_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  void* abort_flag_ = nullptr;  // a word of page-locked memory that all devices can read
  std::mutex mutex_;
  std::condition_variable changed_;                   // preparing_ became false
  bool preparing_ = false;                            // guarded by mutex_: a call of prepare() compiles or loads
  std::vector<std::unique_ptr<const Kernels>> kept_;  // guarded by mutex_
  // By operation and type; written with release, read with acquire: who sees the pointer sees the kernels.
  std::array<std::atomic<const Kernels*>, reduce_operation_names.size() * element_types.size()> kernels_{};
};

}  // namespace cox::detail
