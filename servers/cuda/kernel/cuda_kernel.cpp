#include <coxswain/servers/cuda/kernel/cuda_kernel.hpp>

#include <coxswain/device_handle/base/task_error.hpp>
#include <coxswain/runtime/base/location.hpp>
#include <coxswain/runtime/error/launch_error.hpp>
#include <coxswain/runtime/launch/launch_limits.hpp>
#include <coxswain/servers/cuda/kernel/kernel_definition.hpp>

namespace cox {

using detail::KernelDefinition;

CudaKernel CudaKernel::from_source(std::string name, CubeDim cube_dim, std::string source, CudaKernelOptions options) {
  return {detail::BiasedSharedPtr<KernelDefinition>::make(std::move(name), KernelDefinition::Source{std::move(source)},
                                                          std::move(options)),
          cube_dim};
}

CudaKernel CudaKernel::from_image(std::string name, CubeDim cube_dim, std::vector<std::byte> image,
                                  CudaKernelOptions options) {
  image.push_back(std::byte{0});  // the driver reads PTX text up to a 0; other images contain their size
  return {detail::BiasedSharedPtr<KernelDefinition>::make(std::move(name), KernelDefinition::Image{std::move(image)},
                                                          std::move(options)),
          cube_dim};
}

CudaKernel CudaKernel::from_function(std::string name, CubeDim cube_dim, Resolver resolver, CudaKernelOptions options) {
  return {detail::BiasedSharedPtr<KernelDefinition>::make(std::move(name), std::move(resolver), std::move(options)),
          cube_dim};
}

CudaKernel::CudaKernel(detail::BiasedSharedPtr<KernelDefinition> definition, CubeDim cube_dim) noexcept
    : definition_(std::move(definition)), cube_dim_(cube_dim) {}

const std::string& CudaKernel::name() const noexcept { return definition_->name(); }
const char* CudaKernel::label() const noexcept { return definition_->label(); }

const CudaKernelOptions& CudaKernel::options() const noexcept { return definition_->options(); }

void CudaKernel::precompile(const std::vector<ComputeCapability>& capabilities) const {
  for (const ComputeCapability device : capabilities) definition_->precompile(device);
}

void CudaKernel::prepare(DeviceId device) const noexcept { definition_->prepare(device.index); }

const detail::LoadedKernel* CudaKernel::loaded(std::uint16_t device_index) const noexcept {
  return definition_->loaded(device_index);
}

const detail::LoadedKernel& CudaKernel::require_loaded(const Location& location, std::source_location site) const {
  const detail::LoadedKernel* const found = loaded(location.device.index);
  const std::string what = detail::launch_name(name(), location);
  if (found == nullptr)
    throw LaunchError(LaunchError::Kind::NullFunction, what + " has not been prepared since the device was opened",
                      site);
  if (!found->failure) return *found;
  const std::string failed = what + ": " + describe_cause(found->failure);
  try {
    std::rethrow_exception(found->failure);
  } catch (const LaunchError& error) {
    throw LaunchError(error.kind(), failed, site, found->failure, error.limit());
  } catch (...) {
    throw LaunchError(LaunchError::Kind::Unknown, failed, site, found->failure);
  }
}

}  // namespace cox
