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
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace cox::detail {
namespace {

using TensorMapWords = std::array<std::uint64_t, sizeof(CUtensorMap) / sizeof(std::uint64_t)>;

/// A launch that is being prepared: its arguments are checked and become the words of the kernel's parameters.
struct Preparation {
  CudaDevice& device;
  CudaStream& stream;
  const CudaKernel& kernel;
  const LoadedKernel& loaded;
  const LaunchArguments& arguments;
  const Caller& caller;
  const std::size_t buffers = arguments.buffers.size();
  CudaLaunch launch = {.loaded = &loaded,
                       .options = &kernel.options(),
                       .dim = kernel.cube_dim(),
                       .name = kernel.label(),
                       .location = stream.location(),
                       .site = caller.site};
  BufferUses uses = {};
  CaptureMemory::Buffer metadata = nullptr;  ///< on the device; null: no words of varying number
  std::size_t parameters = 0;                ///< number of parameters so far
  std::size_t misfit = 0;                    ///< index of the first one that is not as the kernel's own
  std::size_t misfit_words = 0;              ///< its size; 0: there is none so far
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
    throw LaunchError(LaunchError::Kind::NullFunction,
                      launch_name(kernel.name(), stream.location()) +
                          " was not prepared: a client prepares a kernel before it launches it",
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
  require_buffer_limit(launched, preparation.buffers, hardware, location, preparation.caller.site);
  require_cube_dim(launched, hardware, location, preparation.caller.site);
  if (kernel.cube_dim().unit_count() > loaded.max_threads_per_block)
    throw LaunchError::too_many_resources(launch_name(kernel.name(), location) + ", which takes " +
                                              std::to_string(loaded.registers) + " registers per unit,",
                                          {ResourceLimit::Resource::UnitsPerCube,
                                           {kernel.cube_dim().unit_count(), 0, 0},
                                           {loaded.max_threads_per_block, 0, 0}},
                                          preparation.caller.site);
  require_shared_memory(launched, loaded.static_shared_memory + kernel.options().dynamic_shared_memory, hardware,
                        location, preparation.caller.site);
}

/// The next word begins a parameter, or ends the last one. Notes the first parameter whose size is not the kernel's.
void begin_parameter(Preparation& preparation) {
  const std::vector<std::uint32_t>& begins = preparation.loaded.parameter_begins;
  const std::size_t word = preparation.launch.words.size();
  const std::size_t index = preparation.parameters++;
  if (index >= begins.size() || begins[index] == word || preparation.misfit_words != 0) [[likely]]
    return;
  preparation.misfit = index - 1;
  preparation.misfit_words = word - begins[index - 1];
}

/// Adds a parameter of one word.
void add_parameter(Preparation& preparation, std::uint64_t word) {
  begin_parameter(preparation);
  preparation.launch.words.unchecked_push_back(word);
}

/// Adds a parameter that consists of all `words`.
void add_block(Preparation& preparation, std::span<const std::uint64_t> words) {
  begin_parameter(preparation);
  for (const std::uint64_t word : words) preparation.launch.words.unchecked_push_back(word);
}

void add_buffer(Preparation& preparation, const KernelBuffer& buffer, Access most) {
  const Access access = most == Access::Read ? Access::Read : buffer.access;
  add_parameter(preparation, preparation.device.resolve(buffer, access, preparation.caller, preparation.uses).address);
}

void add_tensor_map(Preparation& preparation, const TensorMapArgument& argument) {
  const CudaRange range =
      preparation.device.resolve(argument.binding, argument.access, preparation.caller, preparation.uses);
  const CUtensorMap map =
      encode_tensor_map(argument.descriptor, range.address, preparation.stream.location(), preparation.caller.site);
  add_block(preparation, std::bit_cast<TensorMapWords>(map));
  preparation.launch.has_tensor_maps = true;
}

/// Uses the kernel's own signature: each parameter takes the next argument of its kind.
void add_by_signature(Preparation& preparation, const std::vector<KernelParameter>& parameters) {
  const LaunchArguments& arguments = preparation.arguments;
  const std::span<const std::uint64_t> words = arguments.words;
  const auto wanted = [&](KernelParameter::Kind kind) {
    return static_cast<std::size_t>(std::ranges::count(parameters, kind, &KernelParameter::kind));
  };
  require_buffer_count({preparation.kernel.name(), preparation.kernel.cube_dim()},
                       wanted(KernelParameter::Kind::Buffer), preparation.buffers, preparation.stream.location(),
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
        const std::size_t taken = parameter_words(parameter.size);
        if (word + taken > words.size())
          throw_argument_error(preparation, LaunchError::Kind::ArgumentCount, "was given too few scalars");
        add_block(preparation, words.subspan(word, taken));
        word += taken;
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
  CudaLaunch& launch = preparation.launch;
  launch.metadata = preparation.device.allocate_pinned(words.size_bytes(), preparation.caller);
  std::memcpy(launch.metadata.data(), words.data(), words.size_bytes());
  auto& buffer = static_cast<DeviceBuffer&>(*preparation.metadata);
  launch.metadata_address = buffer.address();
  preparation.uses.push_back({&buffer, Access::Overwrite, {}});
  add_parameter(preparation, buffer.address());
}

/// Adds all buffers, all tensor maps, a pointer to the words of varying number, then the other words in one block; or,
/// if the kernel has that many parameters, each of these words as a parameter of its own.
void add_by_convention(Preparation& preparation) {
  const LaunchArguments& arguments = preparation.arguments;
  for (const KernelBuffer buffer : arguments.buffers) add_buffer(preparation, buffer, Access::Write);
  for (const TensorMapArgument& tensor_map : arguments.tensor_maps) add_tensor_map(preparation, tensor_map);
  const std::span<const std::uint64_t> statics = arguments.words.first(arguments.static_words);
  if (statics.size() != arguments.words.size()) add_dynamic_words(preparation, arguments.words.subspan(statics.size()));
  if (preparation.loaded.parameter_sizes.size() == preparation.parameters + statics.size()) {
    for (const std::uint64_t word : statics) add_parameter(preparation, word);
  } else if (!statics.empty()) {
    add_block(preparation, statics);
  }
}

/// Checks the arguments against the kernel's parameters.
void require_parameters(Preparation& preparation) {
  const auto& sizes = preparation.loaded.parameter_sizes;
  if (sizes.size() != preparation.parameters)
    throw_argument_error(preparation, LaunchError::Kind::ArgumentCount,
                         "takes " + std::to_string(sizes.size()) + " parameters, but was given " +
                             std::to_string(preparation.parameters));
  begin_parameter(preparation);  // the end of the last one
  if (preparation.misfit_words != 0)
    throw_argument_error(preparation, LaunchError::Kind::ArgumentType,
                         "takes " + format_byte_count(sizes[preparation.misfit]) + " as parameter " +
                             std::to_string(preparation.misfit) + ", but was given " +
                             format_byte_count(preparation.misfit_words * sizeof(std::uint64_t)));
}

/// Throws LaunchError.
void resolve_parameters(Preparation& preparation) {
  const LaunchArguments& arguments = preparation.arguments;
  preparation.launch.words.reserve(preparation.buffers + arguments.words.size() + 1 +
                                   arguments.tensor_maps.size() * std::tuple_size_v<TensorMapWords>);
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
    CudaStream& stream = preparation_.stream;
    preparation_.launch.issue(count_(), target, stream, stream.next_sequence());
  }
  [[nodiscard]] bool is_batched() const noexcept { return preparation_.launch.can_batch(); }
  // The sequence is the launch's position among the errors of the stream, before that of a read that is queued after
  // it. The kernel keeps what the launch refers to.
  [[nodiscard]] auto later() && {
    return [launch = std::move(preparation_.launch), kernel = preparation_.kernel, count = std::move(count_),
            &stream = preparation_.stream, sequence = preparation_.stream.next_sequence()](
               const IssueTarget& target) mutable { launch.issue(count(), target, stream, sequence); };
  }

 private:
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
void poison_outputs(CudaDevice& device, const CudaKernel& kernel, const LaunchArguments& arguments,
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

void enqueue_cuda_launch(CudaDevice& device, CudaStream& stream, const CudaKernel& kernel, const CubeCount& count,
                         const LaunchArguments& arguments, const Caller& caller) {
  const LoadedKernel& loaded = require_loaded(device, kernel, stream, caller);
  Preparation preparation{device, stream, kernel, loaded, arguments, caller};
  require_limits(preparation);
  resolve_parameters(preparation);
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
