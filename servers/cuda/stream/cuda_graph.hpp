#pragma once

#include <coxswain/device_handle/base/unique_function.hpp>
#include <coxswain/runtime/buffer/capture_memory.hpp>
#include <coxswain/runtime/buffer/recorded_work.hpp>
#include <coxswain/runtime/bytes/bytes.hpp>
#include <coxswain/runtime/communication/membership_epoch.hpp>
#include <coxswain/runtime/handle/managed_memory.hpp>
#include <coxswain/servers/cuda/driver/driver.hpp>
#include <coxswain/servers/cuda/stream/stream_queue.hpp>

#include <utility>
#include <vector>

namespace cox::detail {

class CudaDevice;

/// What a replay that was called in that epoch does between two parts. Device thread. Throws what hinders it.
using CudaReplayCallback = UniqueFunction<void(CudaDevice&, CudaStream&, MembershipEpoch)>;

/// Work of a stream that was recorded instead of issued, and becomes a graph of the driver when the capture ends: one
/// for each part, between which collectives take their turn in the order of all devices. Device thread only.
///
/// The steps are captured all at once, in a stream of their own and in thread-local mode: between them the device
/// thread serves others, whose work must neither join the capture nor break it.
class CudaGraph : private RecordedWork<CudaIssue, CudaReplayCallback> {
 public:
  CudaGraph() = default;
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;
  /// The replays are over.
  ~CudaGraph();

  using RecordedWork::add;
  using RecordedWork::add_replay_callback;
  using RecordedWork::keep;
  /// Memory of the graph's own. Throws std::bad_alloc.
  void keep(CaptureMemory::Buffer memory) { scratch_.push_back(std::move(memory)); }
  /// Captures all steps, and makes the graph ready to be launched. Throws CudaError, and what a step throws.
  void finish(CUstream stream);

  [[nodiscard]] bool has_one_part() const noexcept { return natives_.size() == 1; }
  /// Calls `visit(use)` for the buffers of each part.
  template <class Visit>
  void for_each_use(Visit&& visit) {
    for (const Part& part : parts())
      for (const BufferUse& use : part.uses) visit(use);
  }
  /// Calls `launch(graph, uses)` for each part with steps, and `replay_callback(between)` for what comes between two.
  /// Throws what they throw.
  template <class Launch, class Between>
  void replay(Launch&& launch, Between&& replay_callback) {
    auto native = natives_.begin();
    for (Part& part : parts()) {
      if (*native != nullptr) launch(*native, part.uses);
      if (part.replay_callback) replay_callback(part.replay_callback);
      ++native;
    }
  }
  /// The replays have been issued on `target`: it holds the host memory that the graph copies from until they have
  /// completed.
  void release_host_memory(const IssueTarget& target) noexcept;

 private:
  [[nodiscard]] CUgraphExec capture(std::vector<CudaIssue>& steps, CUstream stream);

  std::vector<Bytes> kept_;
  std::vector<CaptureMemory::Buffer> scratch_;
  std::vector<CUgraphExec> natives_;  // of each part; null where it has no steps
};

}  // namespace cox::detail
