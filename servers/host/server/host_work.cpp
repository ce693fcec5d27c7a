#include <coxswain/servers/host/server/host_work.hpp>

#include <coxswain/runtime/base/byte_count.hpp>
#include <coxswain/runtime/error/io_error.hpp>
#include <coxswain/runtime/error/launch_error.hpp>
#include <coxswain/runtime/launch/launch_limits.hpp>
#include <coxswain/runtime/tensor/copy_plan.hpp>
#include <coxswain/runtime/trace/trace.hpp>
#include <coxswain/servers/host/memory/host_copy.hpp>
#include <coxswain/servers/host/server/host_launch.hpp>

#include <functional>
#include <optional>
#include <string>
#include <utility>

namespace cox::detail {
namespace {

struct Part {
  CopyPlan plan;
  HostRange range;
};
using Parts = SmallVector<Part, 1>;

std::vector<Bytes> download_all(const Parts& parts) {
  std::vector<Bytes> contents;
  contents.reserve(parts.size());
  for (const Part& part : parts) {
    contents.push_back(Bytes::uninitialized(part.plan.size()));
    download(part.plan, part.range.data, contents.back().data());
  }
  return contents;
}

HostRange resolve_dynamic_count(const HostDevice& device, const MemoryWindow& window, const Caller& caller,
                                BufferUses& uses) {
  const HostRange range = device.resolve(window, Access::Read, caller, uses);
  if (range.size < 3 * sizeof(std::uint32_t))
    throw IoError(IoError::Kind::SizeMismatch,
                  "a dynamic cube count needs 12 B, but its buffer has " + format_byte_count(range.size), caller.site);
  return range;
}

/// Resolves the cube count and the buffers of the launch. Throws LaunchError.
void resolve_arguments(HostLaunch& launch, const HostDevice& device, const CubeCount& count,
                       const LaunchArguments& arguments, const Caller& caller, BufferUses& uses) {
  try {
    if (const CubeCount::Static* known = count.as_static()) {
      require_cube_count({launch.kernel.name(), launch.kernel.cube_dim()}, *known, *launch.hardware, launch.location,
                         caller.site);
      launch.count = *known;
    } else {
      launch.dynamic_count = resolve_dynamic_count(device, *count.as_dynamic(), caller, uses);
    }
    launch.arguments.reserve(arguments.buffers.size());
    for (const KernelBuffer buffer : arguments.buffers)
      launch.arguments.push_back({device.resolve(buffer, buffer.access, caller, uses), buffer.access});
  } catch (const IoError& error) {
    throw LaunchError(LaunchError::Kind::Io,
                      launch_name(launch.kernel.name(), launch.location) + " cannot be launched: " + error.brief(),
                      caller.site, std::current_exception());
  }
}

}  // namespace

void queue_upload(HostDevice& device, Upload& upload, const Caller& caller) {
  const Location location = device.location(caller);
  const CopyPlan rows = plan_copy(upload.destination, location, caller.site, upload.source.size());
  BufferUses uses;
  const HostRange range = device.resolve(upload.destination.binding, Access::Overwrite, caller, uses);
  uses.front().whole = uses.front().whole && covers_allocation(rows, upload.destination, uses.front().buffer->size());
  if (rows.size() == 0 && !uses.front().whole) return;
  HostStream& stream = device.stream(caller.stream);
  device.submit(
      stream, uses,
      [rows, range, source = std::move(upload.source), location, site = caller.site,
       memory = device.operation_memory(stream, uses, caller.site)] {
        memory.run(
            location,
            [&] {
              try {
                detail::upload(rows, source, range.data);
              } catch (const IoError& error) {
                throw IoError(error.kind(), std::string(error.what()) + ", for an upload to " + location.to_string(),
                              site, error.cause(), error.sizes());
              }
            },
            std::identity());
      },
      "write");
}

void queue_download(HostDevice& device, Downloads downloads, const Caller& caller,
                    Promise<std::vector<Bytes>> promise) {
  HostStream& stream = device.stream(caller.stream);
  BufferUses uses;
  Parts parts;
  std::exception_ptr failure;
  try {
    stream.capture.require_none("a read", caller.site);
  } catch (...) {
    return promise.set_error(std::current_exception());
  }
  OperationMemory memory;
  try {
    for (const CopyDescriptor& tensor : downloads)
      parts.push_back({plan_copy(tensor, device.location(caller), caller.site),
                       device.resolve(tensor.binding, Access::Read, caller, uses)});
    memory = OperationMemory(uses, caller.site);
  } catch (...) {
    failure = std::current_exception();
    parts.clear();
    uses.clear();
  }
  device.submit(
      stream, uses,
      [stream = stream.shared_from_this(), event = stream.next_event(), site = caller.site, parts = std::move(parts),
       memory = std::move(memory), failure, promise = std::move(promise)]() mutable {
        TakenError error = stream->take_errors_before(event, site);
        if (!error && failure == nullptr) failure = memory.refusal(stream->location());
        if (!error && failure != nullptr) error = stream->failed(event, failure);
        if (error) return promise.set_error(std::move(error));
        std::vector<Bytes> contents;
        try {
          contents = download_all(parts);
        } catch (...) {
          return promise.set_error(stream->failed(event, std::current_exception()));
        }
        promise.set_value(std::move(contents));
      },
      "read");
}

void enqueue_host_launch(HostDevice& device, HostKernel kernel, const CubeCount& count,
                         const LaunchArguments& arguments, ExecutionMode mode, const Caller& caller) {
  const auto& facts = device.facts();
  const std::shared_ptr<const HardwareProperties> hardware(facts, &facts->properties.hardware);
  const Location location = device.location(caller);
  if (!kernel.function())
    throw LaunchError(LaunchError::Kind::NullFunction, launch_name(kernel.name(), location) + " has no function to run",
                      caller.site);
  const LaunchedKernel launched{kernel.name(), kernel.cube_dim()};
  if (!arguments.tensor_maps.empty())
    throw LaunchError(LaunchError::Kind::ArgumentType,
                      launch_name(kernel.name(), location) + " was given " +
                          std::to_string(arguments.tensor_maps.size()) +
                          " tensor maps, which kernels of host devices do not take",
                      caller.site);
  require_buffer_limit(launched, arguments.buffers.size(), *hardware, location, caller.site);
  require_buffer_count(launched, kernel.buffer_count(), arguments.buffers.size(), location, caller.site);
  require_cube_dim(launched, *hardware, location, caller.site);
  HostLaunch launch{.kernel = std::move(kernel),
                    .count = {},
                    .dynamic_count = std::nullopt,
                    .arguments = {},
                    .words = {arguments.words.begin(), arguments.words.end()},
                    .types = arguments.types,
                    .memory = {},
                    .mode = mode,
                    .hardware = hardware,
                    .location = location,
                    .site = caller.site};
  BufferUses uses;
  resolve_arguments(launch, device, count, arguments, caller, uses);
  const char* const name = trace::enabled() ? trace::intern(launch.kernel.name()) : "launch";
  HostStream& stream = device.stream(caller.stream);
  launch.memory = device.operation_memory(stream, uses, caller.site);
  device.submit(stream, uses, [launch = std::move(launch)]() mutable { launch.run(); }, name);
}

}  // namespace cox::detail
