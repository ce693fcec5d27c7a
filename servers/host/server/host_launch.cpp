#include <coxswain/servers/host/server/host_launch.hpp>

#include <coxswain/device_handle/base/task_error.hpp>
#include <coxswain/runtime/error/launch_error.hpp>
#include <coxswain/runtime/error/server_error.hpp>
#include <coxswain/runtime/launch/launch_limits.hpp>

#include <array>
#include <cstring>
#include <string>

namespace cox::detail {
namespace {

CubeCount::Static read_count(const HostRange& range) {
  std::array<std::uint32_t, 3> values{};
  std::memcpy(values.data(), range.data, sizeof(values));
  return {values[0], values[1], values[2]};
}

/// Rethrows the exception of a kernel as a LaunchError that names the kernel and the cube.
[[noreturn]] void rethrow_in_cube(const HostLaunch& launch, const KernelContext& context) {
  const auto& index = context.cube_index();
  const std::exception_ptr cause = std::current_exception();
  const std::string what = launch_name(launch.kernel.name(), launch.location) + " failed in cube (" +
                           std::to_string(index[0]) + ", " + std::to_string(index[1]) + ", " +
                           std::to_string(index[2]) + "): " + describe_cause(cause);
  try {
    throw;
  } catch (const LaunchError& error) {
    throw LaunchError(error.kind(), what, launch.site, cause);
  } catch (...) {
    throw LaunchError(LaunchError::Kind::KernelFailed, what, launch.site, cause);
  }
}

}  // namespace

void HostLaunch::run() {
  memory.run(
      location, [this] { run_cubes(); },
      [this](const std::exception_ptr& refusal) {
        return std::make_exception_ptr(LaunchError(
            LaunchError::Kind::Io, launch_name(kernel.name(), location) + " was not run: " + describe_cause(refusal),
            site, refusal));
      });
}

void HostLaunch::run_cubes() {
  if (dynamic_count) {
    count = read_count(*dynamic_count);
    require_cube_count({kernel.name(), kernel.cube_dim()}, count, *hardware, location, site);
  }
  SmallVector<KernelContext::Buffer, 8> buffers;
  for (const Argument& argument : arguments)
    buffers.push_back({argument.range.data, argument.range.size, argument.access});
  KernelContext context(kernel.cube_dim(), count, {buffers.data(), buffers.size()}, {words.data(), words.size()}, mode,
                        types);
  try {
    for (std::uint32_t z = 0; z < count.z; ++z)
      for (std::uint32_t y = 0; y < count.y; ++y)
        for (std::uint32_t x = 0; x < count.x; ++x) {
          context.set_cube_index({x, y, z});
          kernel.function()(context);
        }
  } catch (...) {
    rethrow_in_cube(*this, context);
  }
}

}  // namespace cox::detail
