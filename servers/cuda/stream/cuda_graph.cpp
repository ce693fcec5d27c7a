#include <coxswain/servers/cuda/stream/cuda_graph.hpp>

#include <exception>
#include <source_location>

namespace cox::detail {

void CudaGraph::finish(CUstream stream) {
  natives_.reserve(parts().size());
  for (Part& part : parts()) natives_.push_back(part.steps.empty() ? DriverGraphExec() : capture(part.steps, stream));
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

DriverGraphExec CudaGraph::capture(std::vector<CudaIssue>& steps, CUstream stream) {
  COX_CUDA_TRY(stream_begin_capture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  std::exception_ptr failure;
  try {
    for (CudaIssue& step : steps) step({stream, nullptr, &kept_, {}});
  } catch (...) {
    failure = std::current_exception();
  }
  DriverGraph graph;
  const CUresult ended = driver().stream_end_capture(stream, graph.out());
  if (failure != nullptr) std::rethrow_exception(failure);
  if (ended != CUDA_SUCCESS) throw_cuda_error(ended, "stream_end_capture", std::source_location::current());
  DriverGraphExec native;
  COX_CUDA_TRY(graph_instantiate(native.out(), graph.get(), 0));
  COX_CUDA_TRY(graph_upload(native.get(), stream));
  steps.clear();
  return native;
}

}  // namespace cox::detail
