#pragma once

#include <coxswain/runtime/bytes.hpp>
#include <coxswain/runtime/managed_memory.hpp>
#include <coxswain/runtime/memory/resolve_window.hpp>
#include <coxswain/runtime/memory/warm_up_memory.hpp>
#include <coxswain/servers/cuda/detail/stream_queue.hpp>

#include <cstddef>
#include <unordered_map>
#include <vector>

namespace cox::detail {

/// Work of a stream that was recorded instead of issued, and becomes a graph of the driver when the capture ends. Keeps
/// all memory that it touches, so that nothing else is ever put there while the graph lives (L11). Device thread only.
///
/// The steps are captured all at once, in a stream of their own and in thread-local mode: between them the device
/// thread serves others, whose work must neither join the capture nor break it.
class CudaGraph {
 public:
  CudaGraph() = default;
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;
  /// The replays are over.
  ~CudaGraph();

  /// Memory that was allocated during the capture. Throws std::bad_alloc.
  void keep(const ManagedMemory& memory) { memory_.push_back(memory); }
  /// Memory of the graph's own. Throws std::bad_alloc.
  void keep(WarmUpMemory::Buffer memory) { scratch_.push_back(std::move(memory)); }
  /// Throws std::bad_alloc; then nothing was added.
  void add(const BufferUses& uses, CudaIssue step);
  /// Captures all steps, and makes the graph ready to be launched. Throws CudaError, and what a step throws.
  void finish(CUstream stream);

  /// Each buffer once, as written if any step writes it.
  [[nodiscard]] const BufferUses& uses() const noexcept { return uses_; }
  /// Gives up the host memory that the graph copies from: `take(Bytes)` for each.
  template <class Take>
  void release_host_memory(Take&& take) {
    for (Bytes& bytes : kept_) take(std::move(bytes));
    kept_.clear();
  }
  /// Null if there are no steps.
  [[nodiscard]] CUgraphExec native() const noexcept { return graph_; }

 private:
  std::vector<CudaIssue> steps_;
  std::vector<ManagedMemory> memory_;
  std::vector<Bytes> kept_;
  std::vector<WarmUpMemory::Buffer> scratch_;
  BufferUses uses_;
  std::unordered_map<DeviceBuffer*, std::size_t> places_;  // in uses_
  CUgraphExec graph_ = nullptr;
};

}  // namespace cox::detail
