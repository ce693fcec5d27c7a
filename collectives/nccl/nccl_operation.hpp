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

/// What a rank gives for one request: addresses on its device, null where it has nothing to give or gets nothing.
struct NcclCall {
  CollectiveRequest request;
  const void* source = nullptr;
  void* destination = nullptr;
};

using NcclCalls = SmallVector<NcclCall, 1>;

/// How the ranks do an operation: by NCCL, or by kernels of our own in the memory of the other GPUs.
enum class CollectiveAlgorithm : std::uint8_t { Nccl, OneShot, TwoShots };

/// Who has launched a part of an operation.
class NcclWaiter {
 public:
  /// The operation has failed before the part's end. Called once at most, on any thread; must not block.
  virtual void fail(const std::exception_ptr& error) noexcept = 0;

 protected:
  ~NcclWaiter() = default;
};

/// One operation of an NcclClique, or a group of them launched as one, from its release until all ranks have ended.
/// What is not said to be for others is the clique's, under its lock.
struct NcclOperation {
  using Time = std::chrono::steady_clock::time_point;
  /// A rank's part that has been launched.
  struct Launched {
    /// What is done before it on its device, except the clique's operations before.
    SmallVector<std::shared_ptr<DeviceEvent>, 1> dependencies;
    std::shared_ptr<DeviceEvent> completion;  ///< Null: it has not been launched.
    std::shared_ptr<NcclWaiter> waiter;       ///< What becomes of it, if it fails before its end.
    bool completed = false;                   ///< It has ended, and the rank has released it: the above is empty.
  };
  NcclOperation(const CollectiveRequests& requests, std::size_t world_size) : summary(requests) {
    launched.reserve(world_size);
    for (std::size_t rank = 0; rank < world_size; ++rank) launched.emplace_back();
  }

  const detail::OperationSummary summary;
  CollectiveAlgorithm algorithm = CollectiveAlgorithm::Nccl;  ///< Set before others know of it.
  std::atomic<std::uint64_t> sequence{0};                     ///< On its communicator. Any thread.
  bool is_started = false;                                    ///< A rank has launched its part.
  SmallVector<Launched, 8> launched;                          ///< By rank.
  std::size_t arrived = 0;  ///< Ranks whose devices have arrived at it, when that was last polled.
  Time arrived_since{};     ///< Since when there are so many.
};

}  // namespace cox
