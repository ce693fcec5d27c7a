#include <coxswain/runtime/base/byte_count.hpp>
#include <coxswain/runtime/error/io_error.hpp>
#include <coxswain/runtime/error/launch_error.hpp>
#include <coxswain/runtime/launch/launch_limits.hpp>
#include <coxswain/servers/cuda/compile/loaded_kernel.hpp>
#include <coxswain/servers/cuda/driver/cuda_try.hpp>
#include <coxswain/servers/cuda/kernel/cuda_launch.hpp>
#include <coxswain/servers/cuda/kernel/tensor_map_encoding.hpp>
#include <coxswain/servers/cuda/server/cuda_work.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace cox::detail {
namespace {

/// A launch that is being prepared.
struct Preparation {
  CudaDevice& device;
  CudaStream& stream;
  const CudaKernel& kernel;
  const LoadedKernel& loaded;
  const KernelArguments& arguments;
  const Caller& caller;
  CudaLaunch launch = {};
  BufferUses uses = {};
  CaptureMemory::Buffer metadata = nullptr;  ///< on the device; null: no words of varying number
  Bytes metadata_source = {};
};

[[noreturn]] void throw_argument_error(const Preparation& preparation, LaunchError::Kind kind,
                                       const std::string& what) {
  throw LaunchError(kind, launch_name(preparation.kernel.name(), preparation.stream.location()) + " " + what,
                    preparation.caller.site);
}

const LoadedKernel& require_loaded(CudaDevice& device, const CudaKernel& kernel, const CudaStream& stream,
                                   const Caller& caller) {
  const LoadedKernel* const loaded = kernel.loaded(device.facts()->owner.device.index);
  if (loaded == nullptr)
    throw LaunchError(
        LaunchError::Kind::NullFunction,
        launch_name(kernel.name(), stream.location()) + " was not prepared: the client does that before it launches",
        caller.site);
  if (loaded->failure != nullptr) std::rethrow_exception(loaded->failure);
  return *loaded;
}

void require_limits(const Preparation& preparation) {
  const HardwareProperties& hardware = preparation.device.facts()->properties.hardware;
  const CudaKernel& kernel = preparation.kernel;
  const LoadedKernel& loaded = preparation.loaded;
  const LaunchedKernel launched{kernel.name(), kernel.cube_dim()};
  const Location& location = preparation.stream.location();
  require_buffer_limit(launched, preparation.arguments.buffers.size(), hardware, location, preparation.caller.site);
  require_cube_dim(launched, hardware, location, preparation.caller.site);
  if (kernel.cube_dim().unit_count() > loaded.max_threads_per_block)
    throw LaunchError::too_many_resources(launch_name(kernel.name(), location) + ", which takes " +
                                              std::to_string(loaded.registers) + " registers a unit,",
                                          {ResourceLimit::Resource::UnitsPerCube,
                                           {kernel.cube_dim().unit_count(), 0, 0},
                                           {loaded.max_threads_per_block, 0, 0}},
                                          preparation.caller.site);
  require_shared_memory(launched, loaded.static_shared_memory + kernel.options().dynamic_shared_memory, hardware,
                        location, preparation.caller.site);
}

void add_buffer(Preparation& preparation, const KernelBuffer& buffer, Access most) {
  const Access access = most == Access::Read ? Access::Read : buffer.access;
  preparation.launch.add_word(preparation.device.resolve(buffer, access, preparation.caller, preparation.uses).address);
}

void add_tensor_map(Preparation& preparation, const TensorMapArgument& argument) {
  const CudaRange range =
      preparation.device.resolve(argument.binding, argument.access, preparation.caller, preparation.uses);
  CudaLaunch& launch = preparation.launch;
  launch.parameters.push_back({static_cast<std::uint32_t>(launch.tensor_maps.size()), true});
  launch.tensor_maps.push_back(
      encode_tensor_map(argument.descriptor, range.address, preparation.stream.location(), preparation.caller.site));
}

/// Uses the kernel's own signature: each parameter takes the next argument of its kind.
void add_by_signature(Preparation& preparation, const std::vector<KernelParameter>& parameters) {
  const KernelArguments& arguments = preparation.arguments;
  const auto& words = arguments.info.data;
  const auto wanted = [&](KernelParameter::Kind kind) {
    return static_cast<std::size_t>(std::ranges::count(parameters, kind, &KernelParameter::kind));
  };
  require_buffer_count({preparation.kernel.name(), preparation.kernel.cube_dim()},
                       wanted(KernelParameter::Kind::Buffer), arguments.buffers.size(), preparation.stream.location(),
                       preparation.caller.site);
  if (wanted(KernelParameter::Kind::TensorMap) != arguments.tensor_maps.size())
    throw_argument_error(preparation, LaunchError::Kind::ArgumentCount,
                         "takes " + std::to_string(wanted(KernelParameter::Kind::TensorMap)) +
                             " tensor maps, but was given " + std::to_string(arguments.tensor_maps.size()));
  auto buffer = arguments.buffers.begin();
  std::size_t tensor_map = 0;
  std::size_t word = 0;
  for (const KernelParameter& parameter : parameters) {
    switch (parameter.kind) {
      case KernelParameter::Kind::Buffer: add_buffer(preparation, *buffer++, parameter.access); break;
      case KernelParameter::Kind::TensorMap: add_tensor_map(preparation, arguments.tensor_maps[tensor_map++]); break;
      case KernelParameter::Kind::Scalar: {
        const std::size_t taken = (parameter.size + sizeof(std::uint64_t) - 1) / sizeof(std::uint64_t);
        if (word + taken > words.size())
          throw_argument_error(preparation, LaunchError::Kind::ArgumentCount, "was given too few scalars");
        preparation.launch.add_word(words[word++]);
        for (std::size_t i = 1; i < taken; ++i) preparation.launch.words.push_back(words[word++]);
        break;
      }
    }
  }
  if (word != words.size())
    throw_argument_error(preparation, LaunchError::Kind::ArgumentCount, "was given too many scalars");
}

/// Adds a copy, in device memory, of the words of varying number.
void add_dynamic_words(Preparation& preparation, std::span<const std::uint64_t> words) {
  preparation.metadata = preparation.device.allocate(words.size_bytes(), preparation.caller);
  preparation.metadata_source = preparation.device.allocate_pinned(words.size_bytes(), preparation.caller);
  std::memcpy(preparation.metadata_source.data(), words.data(), words.size_bytes());
  auto& buffer = static_cast<DeviceBuffer&>(*preparation.metadata);
  preparation.uses.push_back({&buffer, Access::Overwrite, {}});
  preparation.launch.add_word(buffer.address());
}

/// Adds all buffers, all tensor maps, a pointer to the words of varying number, then the other words in one block; or,
/// if the kernel has that many parameters, each of these words as a parameter of its own.
void add_by_convention(Preparation& preparation) {
  const KernelArguments& arguments = preparation.arguments;
  CudaLaunch& launch = preparation.launch;
  for (const KernelBuffer buffer : arguments.buffers) add_buffer(preparation, buffer, Access::Write);
  for (const TensorMapArgument& tensor_map : arguments.tensor_maps) add_tensor_map(preparation, tensor_map);
  const std::span<const std::uint64_t> words(arguments.info.data.data(), arguments.info.data.size());
  const std::size_t statics = std::min(arguments.info.dynamic_metadata_offset, words.size());
  if (statics != words.size()) add_dynamic_words(preparation, words.subspan(statics));
  if (statics == 0) return;
  if (statics > 1 && preparation.loaded.parameter_sizes.size() == launch.parameters.size() + statics) {
    for (const std::uint64_t word : words.first(statics)) launch.add_word(word);
    return;
  }
  launch.add_word(words.front());
  for (const std::uint64_t word : words.subspan(1, statics - 1)) launch.words.push_back(word);
}

/// Checks the arguments against the kernel's parameters, as far as the driver knows these.
void require_parameters(const Preparation& preparation) {
  const auto& sizes = preparation.loaded.parameter_sizes;
  const auto& parameters = preparation.launch.parameters;
  if (sizes.size() != parameters.size())
    throw_argument_error(
        preparation, LaunchError::Kind::ArgumentCount,
        "takes " + std::to_string(sizes.size()) + " parameters, but was given " + std::to_string(parameters.size()));
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const std::size_t next = i + 1 < parameters.size() && !parameters[i + 1].is_tensor_map
                                 ? parameters[i + 1].first
                                 : preparation.launch.words.size();
    const std::size_t given =
        parameters[i].is_tensor_map ? sizeof(CUtensorMap) : (next - parameters[i].first) * sizeof(std::uint64_t);
    const bool fits = given == sizeof(std::uint64_t) ? sizes[i] <= given
                                                     : sizes[i] + sizeof(std::uint64_t) > given && sizes[i] <= given;
    if (!fits)
      throw_argument_error(preparation, LaunchError::Kind::ArgumentType,
                           "takes " + format_byte_count(sizes[i]) + " as parameter " + std::to_string(i) +
                               ", but was given " + format_byte_count(given));
  }
}

/// Throws LaunchError.
void resolve_arguments(Preparation& preparation) {
  try {
    if (const auto& parameters = preparation.kernel.options().parameters) {
      add_by_signature(preparation, *parameters);
    } else {
      add_by_convention(preparation);
    }
  } catch (const IoError& error) {
    throw LaunchError(
        LaunchError::Kind::Io,
        launch_name(preparation.kernel.name(), preparation.stream.location()) + " cannot be launched: " + error.brief(),
        preparation.caller.site, std::current_exception());
  }
  require_parameters(preparation);
}

/// The launch itself, issued now or later. `count` returns the cube count when the launch is issued.
template <class Count>
class LaunchIssue {
 public:
  LaunchIssue(Preparation& preparation, Count count) : preparation_(preparation), count_(std::move(count)) {}

  void operator()(const IssueTarget& target) {
    issue(target, preparation_.stream, preparation_.stream.next_sequence(), preparation_.launch,
          preparation_.metadata_source, metadata_address(), count_, preparation_.stream.location(),
          preparation_.kernel.label(), preparation_.caller.site);
  }
  /// Not if words are copied before the launch: the copy flushes the earlier launches in any case.
  [[nodiscard]] bool is_batched() const noexcept {
    return preparation_.launch.can_batch() && preparation_.metadata_source.empty();
  }
  [[nodiscard]] auto later() && {
    return [launch = std::move(preparation_.launch), kernel = preparation_.kernel,
            metadata = std::move(preparation_.metadata_source), address = metadata_address(), count = std::move(count_),
            &stream = preparation_.stream, sequence = preparation_.stream.next_sequence(),
            location = preparation_.stream.location(),
            site = preparation_.caller.site](const IssueTarget& target) mutable {
      issue(target, stream, sequence, launch, metadata, address, count, location, kernel.label(), site);
    };
  }

 private:
  // `sequence`: the launch's position among the errors of `stream`, before that of a read that is queued after it.
  static void issue(const IssueTarget& target, CudaStream& stream, std::uint64_t sequence, CudaLaunch& launch,
                    Bytes& metadata, CUdeviceptr address, Count& count, const Location& location, const char* name,
                    const std::source_location& site) {
    launch.count = count();
    if (launch.count.is_empty()) return;
    if (!metadata.empty()) {
      const std::span<const std::byte> info = std::as_const(metadata).span();
      target.hold(std::move(metadata));  // first: without memory to hold it, nothing is copied
      COX_CUDA_TRY(copy_to_device(address, info.data(), info.size(), target.stream()));
    }
    launch.issue(target, stream, sequence, location, name, site);
  }
  [[nodiscard]] CUdeviceptr metadata_address() const {
    return preparation_.metadata == nullptr ? 0 : static_cast<DeviceBuffer&>(*preparation_.metadata).address();
  }

  Preparation& preparation_;
  Count count_;
};

template <class Count>
void enqueue_resolved_launch(Preparation& preparation, std::shared_ptr<CudaEvent> ready, Count count) {
  const OperationName name{"launch", preparation.kernel.label(), preparation.caller.site};
  preparation.device.submit(preparation.stream, preparation.uses, name, LaunchIssue(preparation, std::move(count)),
                            std::move(ready));
  if (preparation.metadata != nullptr && preparation.stream.capture.capturing())
    preparation.stream.capture.graph().keep(std::move(preparation.metadata));
}

/// Copies the count to the host; the launch is issued when the copy has completed. Only the stream waits.
void submit_dynamic_launch(Preparation& preparation, const MemoryWindow& window) {
  preparation.stream.capture.require_none("a launch with a dynamic cube count", preparation.caller.site);
  BufferUses uses;
  const CudaRange range = preparation.device.resolve(window, Access::Read, preparation.caller, uses);
  preparation.uses.push_back(uses.front());  // the launch is not run if its count is poisoned (L14)
  constexpr std::size_t size = 3 * sizeof(std::uint32_t);
  if (range.size < size)
    throw IoError(IoError::Kind::SizeMismatch,
                  "a dynamic cube count needs 12 B, but its buffer has " + format_byte_count(range.size),
                  preparation.caller.site);
  // Shared by the launch, which reads it, and the stream, which holds it while the copy may write to it.
  Bytes on_host = preparation.device.allocate_pinned(size, preparation.caller);
  std::byte* const written = on_host.data();
  Bytes read = on_host.share();
  const std::shared_ptr<CudaEvent> there = preparation.device.events().acquire();
  struct Reading {
    bool is_there = false;  // `there` has been recorded
    std::exception_ptr failure;
  };
  const auto reading = std::make_shared<Reading>();
  preparation.device.submit_unchecked(
      preparation.stream, uses, {"read of a cube count", nullptr, preparation.caller.site},
      [written, held = std::move(on_host), there, reading, address = range.address](const IssueTarget& target) mutable {
        try {
          target.hold(std::move(held));  // first: without memory to hold it, nothing is copied
          COX_CUDA_TRY(copy_to_host(written, address, size, target.stream()));
          COX_CUDA_TRY(event_record(there->native(), target.stream()));
          reading->is_there = true;
        } catch (...) {  // the launch reports it
          reading->failure = std::current_exception();
        }
      });
  enqueue_resolved_launch(
      preparation, there,
      [read = std::move(read), reading, hardware = &preparation.device.facts()->properties.hardware,
       kernel = preparation.kernel, location = preparation.stream.location(), site = preparation.caller.site] {
        if (!reading->is_there) {
          if (reading->failure != nullptr) std::rethrow_exception(reading->failure);
          throw LaunchError(LaunchError::Kind::Io,
                            launch_name(kernel.name(), location) + " was not run: its cube count could not be read",
                            site);
        }
        std::array<std::uint32_t, 3> values{};
        std::memcpy(values.data(), std::as_const(read).data(), size);
        const CubeCount::Static count{values[0], values[1], values[2]};
        require_cube_count({kernel.name(), kernel.cube_dim()}, count, *hardware, location, site);
        return count;
      });
}

}  // namespace

// A buffer that the kernel's signature only reads is not poisoned, whatever its argument's access is.
void poison_outputs(CudaDevice& device, const CudaKernel& kernel, const KernelArguments& arguments,
                    const std::exception_ptr& error, const Caller& caller) noexcept {
  std::vector<KernelParameter>::const_iterator next;
  std::vector<KernelParameter>::const_iterator end;
  if (const auto& parameters = kernel.options().parameters) {
    next = parameters->begin();
    end = parameters->end();
  }
  for (const KernelBuffer buffer : arguments.buffers) {
    next = std::find_if(next, end, [](const auto& each) { return each.kind == KernelParameter::Kind::Buffer; });
    const bool only_reads = next != end && (next++)->access == Access::Read;
    if (!only_reads && writes(buffer.access)) device.poison_one(buffer, error, caller);
  }
  for (const TensorMapArgument& map : arguments.tensor_maps)
    if (writes(map.access)) device.poison_one(map.binding, error, caller);
}

void enqueue_launch(CudaDevice& device, CudaStream& stream, const CudaKernel& kernel, const CubeCount& count,
                    const KernelArguments& arguments, const Caller& caller) {
  const LoadedKernel& loaded = require_loaded(device, kernel, stream, caller);
  Preparation preparation{device, stream, kernel, loaded, arguments, caller};
  preparation.launch.function = loaded.function;
  preparation.launch.has_clusters = loaded.has_clusters;
  preparation.launch.dim = kernel.cube_dim();
  preparation.launch.options = &kernel.options();
  require_limits(preparation);
  resolve_arguments(preparation);
  const CubeCount::Static* const known = count.as_static();
  if (known == nullptr) {
    try {
      return submit_dynamic_launch(preparation, *count.as_dynamic());
    } catch (const IoError& error) {
      throw LaunchError(LaunchError::Kind::Io,
                        launch_name(kernel.name(), stream.location()) + " cannot be launched: " + error.brief(),
                        caller.site, std::current_exception());
    }
  }
  require_cube_count({kernel.name(), kernel.cube_dim()}, *known, device.facts()->properties.hardware, stream.location(),
                     caller.site);
  enqueue_resolved_launch(preparation, nullptr, [known = *known] { return known; });
}

}  // namespace cox::detail
