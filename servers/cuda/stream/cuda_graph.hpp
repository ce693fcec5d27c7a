#pragma once

#include <coxswain/device_handle/base/unique_function.hpp>
#include <coxswain/runtime/buffer/capture_memory.hpp>
#include <coxswain/runtime/buffer/recorded_work.hpp>
#include <coxswain/runtime/bytes/bytes.hpp>
#include <coxswain/runtime/communication/membership_epoch.hpp>
#include <coxswain/runtime/handle/managed_memory.hpp>
#include <coxswain/servers/cuda/driver/driver_object.hpp>
#include <coxswain/servers/cuda/stream/stream_queue.hpp>

#include <utility>
#include <vector>

namespace cox::detail {

class CudaDevice;

/// Called between two parts of a replay, with the membership epoch of the replay call. Device thread. Throws what
/// prevents it.
using CudaReplayCallback = UniqueFunction<void(CudaDevice&, CudaStream&, MembershipEpoch)>;

/// Work of a stream that was recorded instead of issued. When the capture ends it becomes one driver graph for each
/// part; collectives run between the parts, in the order of all devices. Device thread only.
///
/// The steps are captured all at once, in a stream of their own and in thread-local mode: between the steps the device
/// thread serves other streams, whose work must neither join the capture nor break it.
class CudaGraph : private RecordedWork<CudaIssue, CudaReplayCallback> {
 public:
  CudaGraph() = default;
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;
  /// Precondition: all replays have completed, or have been issued and release_host_memory() has been called.
  ~CudaGraph() = default;

  using RecordedWork::add;
  using RecordedWork::add_replay_callback;
  using RecordedWork::keep;
  /// Keeps memory that belongs to the graph alone. Throws std::bad_alloc.
  void keep(CaptureMemory::Buffer memory) { scratch_.push_back(std::move(memory)); }
  /// Captures all steps and makes the graph ready to launch. Throws CudaError, and what a step throws.
  void finish(CUstream stream);

  [[nodiscard]] bool has_one_part() const noexcept { return natives_.size() == 1; }
  /// Calls `visit(use)` for the buffer uses of each part.
  template <class Visit>
  void for_each_use(Visit&& visit) {
    for (const Part& part : parts())
      for (const BufferUse& use : part.uses) visit(use);
  }
  /// Calls `launch(graph, uses)` for each part with steps, and `replay_callback(between)` for each callback between two
  /// parts. Throws what they throw.
  template <class Launch, class Between>
  void replay(Launch&& launch, Between&& replay_callback) {
    auto native = natives_.begin();
    for (Part& part : parts()) {
      if (*native) launch(native->get(), part.uses);
      if (part.replay_callback) replay_callback(part.replay_callback);
      ++native;
    }
  }
  /// Call after all replays have been issued on `target`. Passes the host memory that the graph copies from to
  /// `target`, which holds it until the replays have completed.
  void release_host_memory(const IssueTarget& target) noexcept;

 private:
  [[nodiscard]] DriverGraphExec capture(std::vector<CudaIssue>& steps, CUstream stream);

  std::vector<Bytes> kept_;
  std::vector<CaptureMemory::Buffer> scratch_;
  std::vector<DriverGraphExec> natives_;  // one for each part; null if the part has no steps
};

}  // namespace cox::detail
