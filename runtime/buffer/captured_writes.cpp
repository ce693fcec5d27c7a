#include <coxswain/runtime/buffer/captured_writes.hpp>

#include <coxswain/runtime/error/server_error.hpp>

namespace cox {

void CapturedWrites::require_none(const DeviceBuffer& buffer, const Location& location,
                                  std::source_location site) const {
  const auto found = writers_.find(&buffer);
  if (found == writers_.end() || is_capturing(location.stream)) return;
  throw ServerError(ServerError::Kind::Graph,
                    location.to_string() + " cannot use memory that the capture on " +
                        Location{location.device, found->second}.to_string() +
                        " writes: its content is defined only when the graph has run; use it on that stream, or after "
                        "graph_stop_capture",
                    site);
}

}  // namespace cox
