#include <coxswain/servers/cuda/stream/cuda_graph.hpp>

#include <coxswain/servers/cuda/driver/cuda_try.hpp>

#include <exception>
#include <memory>
#include <source_location>
#include <type_traits>

namespace cox::detail {
namespace {

struct DestroyGraph {
  void operator()(CUgraph graph) const noexcept { COX_CUDA_CHECK(graph_destroy(graph)); }
};
using CapturedGraph = std::unique_ptr<std::remove_pointer_t<CUgraph>, DestroyGraph>;

}  // namespace

CudaGraph::~CudaGraph() {
  for (CUgraphExec native : natives_)
    if (native != nullptr) COX_CUDA_CHECK(graph_exec_destroy(native));
}

void CudaGraph::finish(CUstream stream) {
  natives_.reserve(parts().size());
  for (Part& part : parts()) natives_.push_back(part.steps.empty() ? nullptr : capture(part.steps, stream));
}

// If there is no memory to keep the buffers, the device thread waits for the stream instead.
void CudaGraph::release_host_memory(const IssueTarget& target) noexcept {
  try {
    for (Bytes& bytes : kept_) target.hold(std::move(bytes));
  } catch (...) {
    COX_CUDA_CHECK(stream_synchronize(target.stream()));
  }
  kept_.clear();
}

CUgraphExec CudaGraph::capture(std::vector<CudaIssue>& steps, CUstream stream) {
  COX_CUDA_TRY(stream_begin_capture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  std::exception_ptr failure;
  try {
    for (CudaIssue& step : steps) step({stream, nullptr, &kept_, {}});
  } catch (...) {
    failure = std::current_exception();
  }
  CUgraph captured = nullptr;
  const CUresult ended = driver().stream_end_capture(stream, &captured);
  const CapturedGraph graph(captured);
  if (failure != nullptr) std::rethrow_exception(failure);
  if (ended != CUDA_SUCCESS) throw_cuda_error(ended, "stream_end_capture", std::source_location::current());
  CUgraphExec native = nullptr;
  COX_CUDA_TRY(graph_instantiate(&native, graph.get(), 0));
  try {
    COX_CUDA_TRY(graph_upload(native, stream));
  } catch (...) {
    COX_CUDA_CHECK(graph_exec_destroy(native));
    throw;
  }
  steps.clear();
  return native;
}

}  // namespace cox::detail
