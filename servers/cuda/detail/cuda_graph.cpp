#include <coxswain/servers/cuda/detail/cuda_graph.hpp>

#include <coxswain/servers/cuda/detail/cuda_try.hpp>

#include <memory>
#include <type_traits>
#include <utility>

namespace cox::detail {
namespace {

struct DestroyGraph {
  void operator()(CUgraph graph) const noexcept { COX_CUDA_CHECK(graph_destroy(graph)); }
};
using CapturedGraph = std::unique_ptr<std::remove_pointer_t<CUgraph>, DestroyGraph>;

}  // namespace

CudaGraph::~CudaGraph() {
  if (graph_ != nullptr) COX_CUDA_CHECK(graph_exec_destroy(graph_));
}

void CudaGraph::add(const BufferUses& uses, CudaIssue step) {
  for (const BufferUse& use : uses) {
    const auto [found, is_new] = places_.try_emplace(use.buffer, uses_.size());
    if (is_new) {
      if (use.memory != nullptr) memory_.push_back(*use.memory);
      uses_.push_back({use.buffer, use.access, nullptr});
    } else if (use.access == Access::Write) {
      uses_[found->second].access = Access::Write;
    }
  }
  steps_.push_back(std::move(step));
}

void CudaGraph::finish(CUstream stream) {
  if (steps_.empty()) return;
  COX_CUDA_TRY(stream_begin_capture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  std::exception_ptr failure;
  try {
    for (CudaIssue& step : steps_) step({stream, nullptr, &kept_});
  } catch (...) {
    failure = std::current_exception();
  }
  CUgraph captured = nullptr;
  const CUresult ended = driver().stream_end_capture(stream, &captured);
  const CapturedGraph graph(captured);
  if (failure != nullptr) std::rethrow_exception(failure);
  if (ended != CUDA_SUCCESS) throw_cuda_error(ended, "stream_end_capture", std::source_location::current());
  COX_CUDA_TRY(graph_instantiate(&graph_, graph.get(), 0));
  COX_CUDA_TRY(graph_upload(graph_, stream));
  steps_.clear();
}

}  // namespace cox::detail
