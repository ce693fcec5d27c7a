#pragma once

#include <coxswain/collectives/watch/operation_summary.hpp>
#include <coxswain/runtime/async/device_event.hpp>
#include <coxswain/runtime/base/small_vector.hpp>
#include <coxswain/runtime/communication/collective_request.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>

struct CUstream_st;  // what a CUstream and a cudaStream_t point to

namespace cox {

/// A rank's arguments of one request: device addresses. `source` is null if the rank has no input, `destination` if it
/// gets no output.
struct NcclCall {
  CollectiveRequest request;
  const void* source = nullptr;
  void* destination = nullptr;
};

using NcclCalls = SmallVector<NcclCall, 1>;

/// How an operation is done: by NCCL, or by our own kernels, which write into the memory of the other GPUs. Then ranks
/// learn by lines or by flags that data has arrived (PeerKernels).
enum class CollectiveAlgorithm : std::uint8_t { Nccl, PeerLines, PeerFlags };

struct NcclOperation;

/// The part of a rank's launch that NcclCommunicator uses. `completion` and `dependencies` are set once, before the
/// launch is passed to NcclCommunicator::add().
class NcclLaunch {
 public:
  /// The operation has failed before the rank's launch has completed. Called at most once, on any thread; must not
  /// block.
  virtual void fail(const std::exception_ptr& error) noexcept = 0;

  std::shared_ptr<NcclOperation> operation;  ///< From its release until it has been added, or has failed.
  std::shared_ptr<DeviceEvent> completion;   ///< Set when it has been given to the driver.
  /// Work that completes before it on its device, except for earlier operations of the communicator.
  SmallVector<std::shared_ptr<DeviceEvent>, 1> dependencies;

 protected:
  ~NcclLaunch() = default;
};

/// One operation of an NcclCommunicator, or a group of operations launched as one. Exists from its release until it has
/// completed on all ranks. Members are guarded by the communicator's lock, unless stated otherwise.
struct NcclOperation {
  using Time = std::chrono::steady_clock::time_point;
  /// What has become of a rank's launch.
  struct RankState {
    std::shared_ptr<NcclLaunch> launch;  ///< Null: the rank has not launched it, or need not be notified any more.
    /// Of the launch. Null: the rank has not launched it, or has released it.
    std::shared_ptr<DeviceEvent> completion;
    bool completed = false;  ///< The launch has completed, and the rank has released it.
    /// Of a launch that was abandoned: NcclLaunch::dependencies; null if there are none, or no memory for them.
    std::shared_ptr<DeviceEvent> dependencies{};
  };
  NcclOperation(const CollectiveRequests& requests, std::size_t world_size) : summary(requests) {
    ranks.reserve(world_size);
    for (std::size_t rank = 0; rank < world_size; ++rank) ranks.emplace_back();
  }

  const detail::OperationSummary summary;
  CollectiveAlgorithm algorithm = CollectiveAlgorithm::Nccl;  ///< Set before it is shared.
  std::atomic<std::uint64_t> sequence{0};                     ///< Number on its communicator. Any thread.
  bool is_started = false;                                    ///< A rank has launched it.
  SmallVector<RankState, 8> ranks;
  std::size_t arrived = 0;  ///< Number of ranks whose devices had reached it at the last poll.
  Time arrived_since{};     ///< Since when `arrived` has had this value.
};

}  // namespace cox
