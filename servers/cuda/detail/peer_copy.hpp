#pragma once

#include <coxswain/runtime/copy_plan.hpp>
#include <coxswain/servers/cuda/detail/cuda_context.hpp>
#include <coxswain/servers/cuda/detail/cuda_event.hpp>
#include <coxswain/servers/cuda/detail/driver.hpp>

#include <array>
#include <cstddef>
#include <exception>
#include <memory>
#include <mutex>
#include <vector>

namespace cox::detail {

/// Memory of one side of a transfer.
struct PeerRange {
  CUdeviceptr address = 0;
  CopyPlan rows;
};

/// A transfer from one GPU to another, where its two sides meet. Each brings its memory and the events behind which
/// that may be touched; the second to come issues the copy, on the sender's stream: that is a tenth faster than on the
/// receiver's. Neither waits. Any thread.
class PeerCopy {
 public:
  /// Told how it ended: the error, or the event of the end. Called once, on the thread of whoever comes second; must
  /// not throw.
  using End = UniqueFunction<void(std::exception_ptr, std::shared_ptr<CudaEvent>)>;

  struct Side {
    std::vector<PeerRange> memory;  ///< of each request of the group
    std::vector<std::shared_ptr<CudaEvent>> ready;
    CUstream stream = nullptr;     ///< of the side's device
    CudaEvents* events = nullptr;  ///< the same
    std::exception_ptr failure;    ///< why this side cannot take part
    End end;
  };

  /// `place`: 0 sends, 1 receives.
  void come(std::size_t place, Side side);

 private:
  std::mutex mutex_;
  std::array<Side, 2> sides_;  // guarded by mutex_ until both have come
  bool one_is_there_ = false;  // guarded by mutex_
};

}  // namespace cox::detail
