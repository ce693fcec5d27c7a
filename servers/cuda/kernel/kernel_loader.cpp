#include <coxswain/servers/cuda/kernel/kernel_loader.hpp>

#include <coxswain/device_handle/base/task_error.hpp>
#include <coxswain/runtime/error/launch_error.hpp>
#include <coxswain/runtime/launch/launch_limits.hpp>
#include <coxswain/servers/cuda/driver/cuda_try.hpp>
#include <coxswain/servers/cuda/kernel/cuda_kernel.hpp>
#include <coxswain/servers/cuda/kernel/kernel_library.hpp>

#include <mutex>
#include <new>

namespace cox::detail {
namespace {

int device_attribute(const CudaContext& context, CUdevice_attribute attribute) {
  int value = 0;
  COX_CUDA_TRY(device_attribute(&value, attribute, context.device()));
  return value;
}

int attribute_of(CUfunction function, CUfunction_attribute attribute) {
  int value = 0;
  COX_CUDA_TRY(function_attribute(&value, attribute, function));
  return value;
}

/// Finds the function in the current context and loads it there: no loading is left for its first launch.
CUfunction find_function(const KernelDefinition& definition, const CudaContext& context) {
  if (const auto* const resolver = std::get_if<KernelDefinition::Resolver>(&definition.origin())) {
    void* const function = *resolver ? (*resolver)() : nullptr;
    if (function == nullptr)
      throw LaunchError(LaunchError::Kind::NullFunction, "the program has no function for this device");
    COX_CUDA_TRY(function_load(static_cast<CUfunction>(function)));
    return static_cast<CUfunction>(function);
  }
  return function_of(definition, {device_attribute(context, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
                                  device_attribute(context, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)});
}

/// Other kernels may share the function and its attributes, so attributes are only raised, never lowered.
void raise_attributes(const KernelDefinition& definition, const CudaContext& context, const LoadedKernel& loaded) {
  const CudaKernelOptions& options = definition.options();
  static std::mutex raising;  // for all functions: this runs once for each kernel and device
  const std::lock_guard lock(raising);
  const std::size_t most =
      static_cast<std::size_t>(device_attribute(context, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN));
  const std::size_t all = options.dynamic_shared_memory + loaded.static_shared_memory;
  if (options.dynamic_shared_memory > most || all > most)
    throw LaunchError::too_many_resources("the kernel", {ResourceLimit::Resource::SharedMemory, {all}, {most}},
                                          std::source_location::current());
  constexpr auto shared = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
  if (options.dynamic_shared_memory > static_cast<std::size_t>(attribute_of(loaded.function, shared)))
    COX_CUDA_TRY(function_set_attribute(loaded.function, shared, static_cast<int>(options.dynamic_shared_memory)));
  const auto& cluster = options.cluster_dim;
  constexpr std::uint64_t portable = 8;  // cluster size that every device with clusters supports
  if (std::uint64_t{cluster[0]} * cluster[1] * cluster[2] > portable)
    COX_CUDA_TRY(function_set_attribute(loaded.function, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1));
}

std::vector<std::size_t> parameter_sizes(CUfunction function) {
  std::vector<std::size_t> sizes;
  std::size_t offset = 0;
  std::size_t size = 0;
  while (driver().function_parameter(function, sizes.size(), &offset, &size) == CUDA_SUCCESS) sizes.push_back(size);
  return sizes;
}

void load(const KernelDefinition& definition, const CudaContext& context, LoadedKernel& loaded) {
  const CurrentContext current(context);
  loaded.function = find_function(definition, context);
  loaded.static_shared_memory =
      static_cast<std::size_t>(attribute_of(loaded.function, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES));
  loaded.local_memory = static_cast<std::size_t>(attribute_of(loaded.function, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES));
  loaded.max_threads_per_block =
      static_cast<std::uint32_t>(attribute_of(loaded.function, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK));
  loaded.registers = static_cast<std::uint32_t>(attribute_of(loaded.function, CU_FUNC_ATTRIBUTE_NUM_REGS));
  loaded.parameter_sizes = parameter_sizes(loaded.function);
  loaded.has_clusters = attribute_of(loaded.function, CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET) != 0 ||
                        attribute_of(loaded.function, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH) != 0;
  raise_attributes(definition, context, loaded);
}

}  // namespace

LoadedKernel load_kernel(const KernelDefinition& definition, const std::shared_ptr<const CudaContext>& context) {
  LoadedKernel loaded;
  loaded.context = context;
  try {
    load(definition, *context, loaded);
  } catch (const std::bad_alloc&) {
    throw;
  } catch (...) {
    loaded.function = nullptr;
    loaded.failure = std::current_exception();
  }
  return loaded;
}

const LoadedKernel& require_loaded(const CudaKernel& kernel, const Location& location, std::source_location site) {
  const LoadedKernel* const loaded = kernel.loaded(location.device.index);
  const std::string name = launch_name(kernel.name(), location);
  if (loaded == nullptr)
    throw LaunchError(LaunchError::Kind::NullFunction, name + " has not been prepared for the device as it is open now",
                      site);
  if (!loaded->failure) return *loaded;
  const std::string what = name + ": " + cox::describe_cause(loaded->failure);
  try {
    std::rethrow_exception(loaded->failure);
  } catch (const LaunchError& error) {
    throw LaunchError(error.kind(), what, site, loaded->failure, error.limit());
  } catch (...) {
    throw LaunchError(LaunchError::Kind::Unknown, what, site, loaded->failure);
  }
}

void KernelDefinition::prepare(std::uint16_t device_index) const noexcept {
  if (loaded(device_index) != nullptr || device_index >= max_devices) return;
  const std::lock_guard lock(mutex_);
  if (loaded(device_index) != nullptr) return;
  try {
    const std::shared_ptr<const CudaContext> context = CudaContext::find(device_index);
    if (!context) return;
    kept_.push_back(std::make_unique<const LoadedKernel>(load_kernel(*this, context)));
    loaded_[device_index].store(kept_.back().get(), std::memory_order_release);
  } catch (...) {  // no memory to store the failure: the next launch tries again
  }
}

}  // namespace cox::detail
