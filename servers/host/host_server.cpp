#include <coxswain/servers/host/host_server.hpp>

#include <coxswain/device_handle/call_error.hpp>
#include <coxswain/device_handle/task_error.hpp>
#include <coxswain/runtime/byte_count.hpp>
#include <coxswain/runtime/copy_plan.hpp>
#include <coxswain/runtime/io_error.hpp>
#include <coxswain/servers/host/detail/host_copy.hpp>
#include <coxswain/servers/host/detail/host_launch.hpp>
#include <coxswain/servers/host/detail/host_memory.hpp>
#include <coxswain/servers/host/detail/host_range.hpp>
#include <coxswain/servers/host/detail/host_stream.hpp>
#include <coxswain/servers/host/detail/host_threads.hpp>
#include <coxswain/servers/host/detail/launch_limits.hpp>

#include <algorithm>
#include <optional>
#include <source_location>
#include <string>
#include <unordered_map>
#include <utility>

namespace cox {

using detail::HostBuffer;
using detail::HostEvent;
using detail::HostEvents;
using detail::HostLaunch;
using detail::HostMemory;
using detail::HostRange;
using detail::HostStream;
using detail::HostThreads;

/// What the server owns. Built and destroyed on the device thread.
class HostServer::Device {
 public:
  explicit Device(DeviceId device);
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  ~Device();

  [[nodiscard]] HostStream& stream(StreamId id);
  [[nodiscard]] Place place(const Caller& caller) const { return {utilities->owner.device, caller.stream}; }
  [[nodiscard]] HostRange resolve(const Binding& binding, const Caller& caller) const {
    return detail::resolve(binding, utilities->owner, place(caller), caller.site);
  }
  /// Checks the launch and finds its buffers. Throws LaunchError.
  [[nodiscard]] HostLaunch prepare(HostKernel kernel, const CubeCount& count, KernelArguments arguments,
                                   ExecutionMode mode, const Caller& caller) const;
  /// The copy as rows, and of as many bytes as the host has, if that is given. Throws IoError.
  [[nodiscard]] CopyPlan plan(const CopyDescriptor& tensor, const Caller& caller,
                              std::optional<std::size_t> host_size = std::nullopt) const;
  /// One upload, queued. Throws IoError.
  void upload(Upload upload, const Caller& caller);

  std::shared_ptr<const ServerUtilities<HostServer>> utilities;
  std::shared_ptr<HostMemory> memory;

 private:
  void forget_idle_streams();

  HostThreads threads_;
  std::unordered_map<StreamId, std::shared_ptr<HostStream>> streams_;
  std::size_t sweep_at_ = 1024;  // streams: a client thread that has ended leaves its stream behind
};

namespace {

HostOptions options_for(DeviceId device) {
  const HostOptions options = host_options();
  if (device.type != host_device_type)
    throw CallError(CallError::Kind::UnknownDevice,
                    device.to_string() + " is no host device: those have type " + std::to_string(host_device_type));
  if (device.index >= options.device_count)
    throw CallError(CallError::Kind::UnknownDevice, device.to_string() + " does not exist: there are " +
                                                        std::to_string(options.device_count) +
                                                        " host devices, counted from 0");
  return options;
}

std::shared_ptr<const ServerUtilities<HostServer>> describe(DeviceId device, const HostOptions& options) {
  DeviceProperties properties;
  properties.name = "host device " + std::to_string(device.index);
  properties.memory = {.capacity = options.memory_capacity, .alignment = HostServer::memory_alignment};
  properties.features.insert(Feature::DynamicCubeCount);
  return std::make_shared<const ServerUtilities<HostServer>>(
      ServerUtilities<HostServer>{.owner = {.device = device, .generation = MemoryOwner::next_generation()},
                                  .properties = std::move(properties),
                                  .info = {.threads = options.threads_per_device},
                                  .layout_policy = PitchedLayoutPolicy(HostServer::memory_alignment),
                                  .completion_thread = std::make_shared<CompletionThread>(device)});
}

}  // namespace

HostServer::Device::Device(DeviceId device)
    : utilities(describe(device, options_for(device))),
      memory(std::make_shared<HostMemory>(utilities->properties.memory.capacity, memory_alignment)),
      threads_("cox-host-" + std::to_string(device.index), utilities->info.threads) {}

HostServer::Device::~Device() {
  for (const auto& [id, stream] : streams_) {
    stream->drain();
    // What nobody came to ask for is not lost (L12).
    if (const auto error = stream->take_errors(std::source_location::current()))
      report_task_error({utilities->owner.device, id, error});
  }
  streams_.clear();
  memory->release_all();
  utilities->completion_thread->stop();
}

HostStream& HostServer::Device::stream(StreamId id) {
  if (const auto found = streams_.find(id); found != streams_.end()) return *found->second;
  if (streams_.size() >= sweep_at_) forget_idle_streams();
  auto made = std::make_shared<HostStream>(Place{utilities->owner.device, id}, threads_.executor());
  return *streams_.emplace(id, std::move(made)).first->second;
}

void HostServer::Device::forget_idle_streams() {
  std::erase_if(streams_, [](const auto& entry) { return entry.second->idle(); });
  sweep_at_ = std::max<std::size_t>(1024, 2 * streams_.size());  // so that sweeping costs O(1) a stream
}

HostLaunch HostServer::Device::prepare(HostKernel kernel, const CubeCount& count, KernelArguments arguments,
                                       ExecutionMode mode, const Caller& caller) const {
  const Place here = place(caller);
  const std::shared_ptr<const HardwareProperties> hardware(utilities, &utilities->properties.hardware);
  detail::require_launchable(kernel, arguments, *hardware, here, caller.site);
  HostLaunch launch{.kernel = std::move(kernel),
                    .count = {},
                    .dynamic_count = std::nullopt,
                    .arguments = {},
                    .info = std::move(arguments.info),
                    .mode = mode,
                    .hardware = hardware,
                    .place = here,
                    .site = caller.site};
  try {
    if (const CubeCount::Static* known = count.as_static()) {
      detail::require_cube_count(*known, *hardware, launch.kernel, here, caller.site);
      launch.count = *known;
    } else {
      launch.dynamic_count = resolve(*count.as_dynamic(), caller);
      if (launch.dynamic_count->size < 3 * sizeof(std::uint32_t))
        throw IoError(
            IoError::Kind::SizeMismatch,
            "a dynamic cube count needs 12 B, but its buffer has " + format_byte_count(launch.dynamic_count->size),
            caller.site);
    }
    launch.arguments.reserve(arguments.buffers.size());
    for (const KernelBuffer& buffer : arguments.buffers)
      launch.arguments.push_back({resolve(buffer.binding, caller), buffer.access});
  } catch (const IoError& error) {
    throw LaunchError(LaunchError::Kind::Io,
                      detail::launch_name(launch.kernel, here) + " cannot be launched: " + error.what(), caller.site,
                      std::current_exception());
  }
  return launch;
}

CopyPlan HostServer::Device::plan(const CopyDescriptor& tensor, const Caller& caller,
                                  std::optional<std::size_t> host_size) const {
  try {
    const CopyPlan plan = plan_copy(tensor);
    if (host_size) require_host_size(plan, tensor, *host_size);
    return plan;
  } catch (const IoError& error) {
    throw IoError(error.kind(), std::string(error.what()) + ", on " + place(caller).to_string(), caller.site);
  }
}

void HostServer::Device::upload(Upload upload, const Caller& caller) {
  const CopyPlan plan = this->plan(upload.destination, caller, upload.source.size());
  HostRange range = resolve(upload.destination.binding, caller);
  if (plan.size() == 0) return;
  HostStream& on = stream(caller.stream);
  HostEvents waits;
  range.buffer->order_use(Access::Write, on.next_event(), waits);
  on.submit(std::move(waits), [plan, range = std::move(range), source = std::move(upload.source), place = place(caller),
                               site = caller.site] {
    try {
      detail::upload(plan, source, range.data);
    } catch (const IoError& error) {
      throw IoError(error.kind(), std::string(error.what()) + ", for an upload to " + place.to_string(), site,
                    error.cause(), error.sizes());
    }
  });
}

HostServer::HostServer(DeviceId device) : device_(std::make_unique<Device>(device)) {}
HostServer::HostServer(HostServer&&) noexcept = default;
HostServer& HostServer::operator=(HostServer&&) noexcept = default;
HostServer::~HostServer() = default;

std::shared_ptr<const ServerUtilities<HostServer>> HostServer::utilities() const { return device_->utilities; }

std::vector<DeviceId> HostServer::enumerate_devices(std::uint16_t type) {
  std::vector<DeviceId> devices;
  if (type != host_device_type) return devices;
  const std::uint16_t count = host_device_count();
  devices.reserve(count);
  for (std::uint16_t index = 0; index < count; ++index) devices.push_back({.type = type, .index = index});
  return devices;
}

bool HostServer::initialize_memory(ManagedMemory memory, std::size_t size, const Caller& caller) {
  MemoryState& state = memory.state();
  try {
    state.resource = device_->memory->allocate(size, device_->place(caller), caller.site);
    return true;
  } catch (...) {
    state.failure = std::current_exception();
    device_->stream(caller.stream).fail(state.failure);
    return false;
  }
}

void HostServer::write(Uploads uploads, const Caller& caller) {
  try {
    for (Upload& upload : uploads) device_->upload(std::move(upload), caller);
  } catch (...) {
    device_->stream(caller.stream).fail(std::current_exception());
  }
}

void HostServer::read(Downloads downloads, const Caller& caller, Promise<std::vector<Bytes>> promise) {
  struct Part {
    CopyPlan plan;
    HostRange range;
  };
  HostStream& on = device_->stream(caller.stream);
  const HostEvent event = on.next_event();
  SmallVector<Part, 1> parts;
  std::exception_ptr failure;
  try {
    for (const CopyDescriptor& tensor : downloads)
      parts.push_back({device_->plan(tensor, caller), device_->resolve(tensor.binding, caller)});
  } catch (...) {
    failure = std::current_exception();
    parts.clear();
  }
  HostEvents waits;
  for (const Part& part : parts) part.range.buffer->order_use(Access::Read, event, waits);
  downloads.clear();

  on.submit(std::move(waits), [stream = on.shared_from_this(), event, site = caller.site, parts = std::move(parts),
                               failure, promise = std::move(promise)]() mutable {
    std::exception_ptr error = stream->take_errors_before(event, site);
    if (!error) error = failure;
    std::vector<Bytes> contents;
    if (!error) {
      try {
        for (const Part& part : parts) {
          contents.push_back(Bytes::uninitialized(part.plan.size()));
          detail::download(part.plan, part.range.data, contents.back().data());
        }
      } catch (...) {
        error = std::current_exception();
      }
    }
    parts.clear();  // Before the answer: who has it finds the buffers given back (L11).
    if (error) return promise.set_error(std::move(error));
    promise.set_value(std::move(contents));
  });
}

void HostServer::launch(HostKernel kernel, const CubeCount& count, KernelArguments arguments, ExecutionMode mode,
                        const Caller& caller) {
  if (count.is_empty()) return;
  HostStream& on = device_->stream(caller.stream);
  try {
    HostLaunch launch = device_->prepare(std::move(kernel), count, std::move(arguments), mode, caller);
    HostEvents waits;
    const HostEvent event = on.next_event();
    if (launch.dynamic_count) launch.dynamic_count->buffer->order_use(Access::Read, event, waits);
    for (const HostLaunch::Argument& argument : launch.arguments)
      argument.range.buffer->order_use(argument.access, event, waits);
    on.submit(std::move(waits), [launch = std::move(launch)]() mutable { launch.run(); });
  } catch (...) {
    on.fail(std::current_exception());
  }
}

void HostServer::sync(const Caller& caller, Promise<void> promise) {
  HostStream& on = device_->stream(caller.stream);
  on.submit({}, [stream = on.shared_from_this(), event = on.next_event(), site = caller.site,
                 promise = std::move(promise)]() mutable {
    if (auto error = stream->take_errors_before(event, site)) return promise.set_error(std::move(error));
    promise.set_value();
  });
}

void HostServer::flush(const Caller& caller) {
  if (const auto error = device_->stream(caller.stream).take_errors(caller.site)) std::rethrow_exception(error);
}

MemoryUsage HostServer::memory_usage(const Caller& caller) {
  if (const auto error = device_->stream(caller.stream).peek_errors(caller.site)) std::rethrow_exception(error);
  return device_->memory->usage();
}

MemoryReport HostServer::memory_report(const Caller&) const { return device_->memory->report(); }

void HostServer::memory_cleanup(const Caller&) { device_->memory->cleanup(); }

void HostServer::on_task_error(std::exception_ptr error, StreamId stream) {
  device_->stream(stream).fail(std::move(error));
}

}  // namespace cox
