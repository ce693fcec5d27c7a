#include <coxswain/servers/host/detail/host_capture.hpp>

#include <coxswain/device_handle/task_error.hpp>
#include <coxswain/runtime/server_error.hpp>

#include <string>

namespace cox::detail {

std::shared_ptr<HostGraph> HostCapture::stop(const Place& place, std::source_location site) {
  state_.advance(CaptureState::Call::Stop, site);
  auto graph = std::exchange(graph_, nullptr);
  warm_up_.clear();
  if (const auto failure = std::exchange(failure_, nullptr))
    throw ServerError(ServerError::Kind::Graph,
                      "the capture on " + place.to_string() + " failed: " + cox::describe(failure), site, failure);
  return graph;
}

}  // namespace cox::detail
