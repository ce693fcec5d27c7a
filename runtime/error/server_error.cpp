#include <coxswain/runtime/error/server_error.hpp>

#include <array>
#include <coxswain/device_handle/base/task_error.hpp>

namespace cox {

ServerError ServerError::unhealthy(const Location& location, std::vector<std::exception_ptr> errors,
                                   std::size_t dropped, std::source_location site) {
  const std::size_t count = errors.size() + dropped;
  std::string what = location.to_string() + " is unhealthy: " + std::to_string(count) +
                     (count == 1 ? " queued operation failed: " : " queued operations failed, the first with: ") +
                     describe_cause(errors.front());
  if (dropped > 0) what += " (" + std::to_string(dropped) + " later failures were not kept)";
  ServerError error{Kind::Unhealthy, what, site, errors.front()};
  error.errors_ = std::move(errors);
  return error;
}

const char* to_string(ServerError::Kind kind) noexcept {
  static constexpr std::array names{"generic", "validation", "profile", "io", "unhealthy", "unsupported", "graph"};
  static_assert(names.size() == static_cast<std::size_t>(ServerError::Kind::Graph) + 1);
  return names[static_cast<std::size_t>(kind)];
}

}  // namespace cox
