#include <coxswain/servers/cuda/stream/cuda_graph.hpp>

#include <exception>
#include <source_location>
#include <utility>

namespace cox::detail {

PartGraphs::~PartGraphs() {
  const RelaxedCapture relaxed;
  const CurrentContext current(*context_);
  instances_.clear();
  captured_.clear();
}

void PartGraphs::instantiate() {
  if (!instances_.empty()) return;
  const RelaxedCapture relaxed;
  const CurrentContext current(*context_);
  std::vector<DriverGraphExec> made(captured_.size());
  for (std::size_t part = 0; part < made.size(); ++part)
    if (captured_[part]) COX_CUDA_TRY(graph_instantiate(made[part].out(), captured_[part].get(), 0));
  for (DriverGraph& captured : captured_) captured.reset();
  instances_ = std::move(made);
}

void CudaGraph::finish(CUstream stream, std::shared_ptr<CudaContext> context) {
  natives_ = std::make_shared<PartGraphs>(std::move(context));
  for (Part& part : parts()) natives_->add(part.steps.empty() ? DriverGraph() : capture(part.steps, stream));
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

DriverGraph CudaGraph::capture(std::vector<CudaIssue>& steps, CUstream stream) {
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
  steps.clear();
  return graph;
}

}  // namespace cox::detail
