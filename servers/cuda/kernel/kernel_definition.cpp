#include <coxswain/servers/cuda/kernel/kernel_definition.hpp>

#include <coxswain/runtime/error/launch_error.hpp>
#include <coxswain/runtime/launch/launch_limits.hpp>
#include <coxswain/servers/cuda/driver/cuda_try.hpp>
#include <coxswain/servers/cuda/kernel/kernel_library.hpp>

#include <new>

namespace cox::detail {
namespace {

std::size_t attribute_of(CUfunction function, CUfunction_attribute attribute) {
  int value = 0;
  COX_CUDA_TRY(function_attribute(&value, attribute, function));
  return static_cast<std::size_t>(value);
}

/// Other kernels may share the function and its attributes, so attributes are only raised, never lowered.
void raise_attributes(const CudaKernelOptions& options, const CudaContext& context, const LoadedKernel& loaded) {
  static std::mutex raising;  // for all functions: this runs once for each kernel and device
  const std::lock_guard lock(raising);
  const auto most = static_cast<std::size_t>(context.attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN));
  const std::size_t all = options.dynamic_shared_memory + loaded.static_shared_memory;
  if (options.dynamic_shared_memory > most || all > most)
    throw LaunchError::too_many_resources("the kernel", {ResourceLimit::Resource::SharedMemory, {all}, {most}},
                                          std::source_location::current());
  constexpr auto shared = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
  if (options.dynamic_shared_memory > attribute_of(loaded.function, shared))
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
  CUresult result = CUDA_SUCCESS;
  while ((result = driver().function_parameter(function, sizes.size(), &offset, &size)) == CUDA_SUCCESS)
    sizes.push_back(size);
  if (result != CUDA_ERROR_INVALID_VALUE)  // which says that there is no such parameter
    throw_cuda_error(result, "function_parameter", std::source_location::current());
  return sizes;
}

}  // namespace

const LoadedKernel* KernelDefinition::loaded(std::uint16_t device_index) const noexcept {
  if (device_index >= max_devices) return nullptr;
  const LoadedKernel* const found = loaded_[device_index].load(std::memory_order_acquire);
  return found != nullptr && !found->context.expired() ? found : nullptr;
}

void KernelDefinition::prepare(std::uint16_t device_index) const noexcept {
  if (loaded(device_index) != nullptr || device_index >= max_devices) return;
  const std::lock_guard lock(mutex_);
  if (loaded(device_index) != nullptr) return;
  try {
    const std::shared_ptr<const CudaContext> context = CudaContext::find(device_index);
    if (!context) return;
    auto made = std::make_unique<LoadedKernel>();
    made->context = context;
    try {
      load(*context, *made);
    } catch (const std::bad_alloc&) {
      throw;
    } catch (...) {
      made->function = nullptr;
      made->failure = std::current_exception();
    }
    kept_.push_back(std::move(made));
    loaded_[device_index].store(kept_.back().get(), std::memory_order_release);
  } catch (...) {  // no memory to store the failure: the next launch tries again
  }
}

// Loads the function eagerly: no loading is left for its first launch.
void KernelDefinition::load(const CudaContext& context, LoadedKernel& into) const {
  const CurrentContext current(context);
  into.function = find_function(context);
  into.static_shared_memory = attribute_of(into.function, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
  into.local_memory = attribute_of(into.function, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES);
  into.max_threads_per_block =
      static_cast<std::uint32_t>(attribute_of(into.function, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK));
  into.registers = static_cast<std::uint32_t>(attribute_of(into.function, CU_FUNC_ATTRIBUTE_NUM_REGS));
  into.parameter_sizes = parameter_sizes(into.function);
  for (const std::size_t size : into.parameter_sizes)
    into.parameter_begins.push_back(static_cast<std::uint32_t>(into.parameter_begins.back() + parameter_words(size)));
  into.has_clusters = attribute_of(into.function, CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET) != 0 ||
                      attribute_of(into.function, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH) != 0;
  raise_attributes(options_, context, into);
}

CUfunction KernelDefinition::find_function(const CudaContext& context) const {
  if (const auto* const resolver = std::get_if<Resolver>(&origin_)) {
    const auto function = static_cast<CUfunction>(*resolver ? (*resolver)() : nullptr);
    if (function == nullptr)
      throw LaunchError(LaunchError::Kind::NullFunction, "the program has no function for this device");
    COX_CUDA_TRY(function_load(function));
    return function;
  }
  const ComputeCapability device{context.attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
                                 context.attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)};
  if (const auto* const image = std::get_if<Image>(&origin_)) return load_from_image(image->bytes, name_, device);
  return load_from_source(source(), name_, device);
}

// Precondition: the origin is a source.
KernelSource KernelDefinition::source() const {
  return {std::get<Source>(origin_).text, options_.name_expression ? name_ : "", options_.headers,
          options_.compile_options};
}

void KernelDefinition::precompile(ComputeCapability device) const {
  if (std::holds_alternative<Source>(origin_)) detail::precompile(source(), name_, device);
}

}  // namespace cox::detail
