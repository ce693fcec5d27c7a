#include <coxswain/servers/cuda/detail/cuda_capture.hpp>

#include <coxswain/device_handle/task_error.hpp>
#include <coxswain/runtime/server_error.hpp>

#include <string>

namespace cox::detail {

std::shared_ptr<CudaGraph> CudaCapture::stop(CUstream stream, const Place& place, std::source_location site) {
  state_.advance(CaptureState::Call::Stop, site);
  auto graph = std::exchange(graph_, nullptr);
  warm_up_.clear();
  auto failure = std::exchange(failure_, nullptr);
  if (failure == nullptr) {
    try {
      graph->finish(stream);
      return graph;
    } catch (...) {
      failure = std::current_exception();
    }
  }
  throw ServerError(ServerError::Kind::Graph,
                    "the capture on " + place.to_string() + " failed: " + cox::describe(failure), site, failure);
}

}  // namespace cox::detail
