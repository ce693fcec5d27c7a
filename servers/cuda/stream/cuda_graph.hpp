#pragma once

#include <coxswain/device_handle/base/unique_function.hpp>
#include <coxswain/runtime/buffer/capture_memory.hpp>
#include <coxswain/runtime/buffer/recorded_work.hpp>
#include <coxswain/runtime/bytes/bytes.hpp>
#include <coxswain/runtime/communication/membership_epoch.hpp>
#include <coxswain/runtime/handle/managed_memory.hpp>
#include <coxswain/servers/cuda/device/cuda_context.hpp>
#include <coxswain/servers/cuda/driver/driver_object.hpp>
#include <coxswain/servers/cuda/stream/stream_queue.hpp>

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace cox::detail {

class CudaDevice;

/// Called between two parts of a replay, with the membership epoch of the replay call. Device thread. Throws what
/// prevents it.
using CudaReplayCallback = UniqueFunction<void(CudaDevice&, CudaStream&, MembershipEpoch)>;

/// The driver's graphs of a captured graph, one for each part. One thread at a time.
class PartGraphs {
 public:
  explicit PartGraphs(std::shared_ptr<CudaContext> context) noexcept : context_(std::move(context)) {}
  PartGraphs(const PartGraphs&) = delete;
  PartGraphs& operator=(const PartGraphs&) = delete;
  ~PartGraphs();

  /// `graph`: null if the part has no steps. Throws std::bad_alloc.
  void add(DriverGraph graph) { captured_.push_back(std::move(graph)); }
  [[nodiscard]] std::size_t size() const noexcept { return captured_.size(); }
  /// Makes the graphs ready to launch, unless they are. The driver may wait for running kernels meanwhile, with a lock
  /// that others need (T1): to be called while no collective is half launched. Throws CudaError.
  void instantiate();
  [[nodiscard]] bool has_steps(std::size_t part) const noexcept { return captured_[part] || is_ready(part); }
  /// Null if the part has no steps, or before instantiate().
  [[nodiscard]] CUgraphExec operator[](std::size_t part) const noexcept {
    return is_ready(part) ? instances_[part].get() : nullptr;
  }

 private:
  [[nodiscard]] bool is_ready(std::size_t part) const noexcept { return part < instances_.size() && instances_[part]; }

  const std::shared_ptr<CudaContext> context_;
  std::vector<DriverGraph> captured_;
  std::vector<DriverGraphExec> instances_;
};

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
  /// Captures all steps, in a stream of that context. Throws CudaError, and what a step throws.
  void finish(CUstream stream, std::shared_ptr<CudaContext> context);
  /// To be instantiated before the first replay, by any thread. Precondition: finish().
  [[nodiscard]] const std::shared_ptr<PartGraphs>& natives() const noexcept { return natives_; }

  [[nodiscard]] bool has_one_part() const noexcept { return natives_->size() == 1; }
  /// Calls `visit(use)` for the buffer uses of each part.
  template <class Visit>
  void for_each_use(Visit&& visit) {
    for (const Part& part : parts())
      for (const BufferUse& use : part.uses) visit(use);
  }
  /// Calls `launch(graph, uses)` for each part with steps, and `replay_callback(between)` for each callback between two
  /// parts. `graph`: null if it was not instantiated. Throws what they throw.
  template <class Launch, class Between>
  void replay(Launch&& launch, Between&& replay_callback) {
    std::size_t number = 0;
    for (Part& part : parts()) {
      if (natives_->has_steps(number)) launch((*natives_)[number], part.uses);
      if (part.replay_callback) replay_callback(part.replay_callback);
      ++number;
    }
  }
  /// Call after all replays have been issued on `target`. Passes the host memory that the graph copies from to
  /// `target`, which holds it until the replays have completed.
  void release_host_memory(const IssueTarget& target) noexcept;

 private:
  [[nodiscard]] DriverGraph capture(std::vector<CudaIssue>& steps, CUstream stream);

  std::vector<Bytes> kept_;
  std::vector<CaptureMemory::Buffer> scratch_;
  std::shared_ptr<PartGraphs> natives_;  // null until finish()
};

}  // namespace cox::detail
