#include <coxswain/runtime/error/launch_error.hpp>

namespace cox {
namespace {

bool is_triple(ResourceLimit::Resource resource) noexcept {
  return resource == ResourceLimit::Resource::CubeDim || resource == ResourceLimit::Resource::CubeCount;
}

const char* unit_of(ResourceLimit::Resource resource) noexcept {
  switch (resource) {
    case ResourceLimit::Resource::SharedMemory: return " B";
    case ResourceLimit::Resource::Buffers: return " buffers";
    default: return " units";
  }
}

std::string figures(ResourceLimit::Resource resource, const std::array<std::uint64_t, 3>& values) {
  if (!is_triple(resource)) return std::to_string(values[0]) + unit_of(resource);
  return "(" + std::to_string(values[0]) + ", " + std::to_string(values[1]) + ", " + std::to_string(values[2]) + ")";
}

}  // namespace

LaunchError LaunchError::too_many_resources(const std::string& what, const ResourceLimit& limit,
                                            std::source_location site) {
  return {Kind::TooManyResources,
          what + ": the " + to_string(limit.resource) + " exceeds the device's limit: requested " +
              figures(limit.resource, limit.requested) + ", maximum " + figures(limit.resource, limit.maximum),
          site, nullptr, limit};
}

const char* to_string(LaunchError::Kind kind) noexcept {
  static constexpr std::array names{"compilation",   "out_of_memory",  "too_many_resources", "io",
                                    "null_function", "argument_count", "argument_type",      "out_of_bounds",
                                    "kernel_failed", "unknown"};
  static_assert(names.size() == static_cast<std::size_t>(LaunchError::Kind::Unknown) + 1);
  return names[static_cast<std::size_t>(kind)];
}

const char* to_string(ResourceLimit::Resource resource) noexcept {
  static constexpr std::array names{"shared memory", "number of units per cube", "cube dim", "cube count",
                                    "number of buffers"};
  static_assert(names.size() == static_cast<std::size_t>(ResourceLimit::Resource::Buffers) + 1);
  return names[static_cast<std::size_t>(resource)];
}

}  // namespace cox
