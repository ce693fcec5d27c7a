#include <coxswain/servers/cuda/kernel/kernel_definition.hpp>

namespace cox::detail {

const LoadedKernel* KernelDefinition::loaded(std::uint16_t device_index) const noexcept {
  if (device_index >= max_devices) return nullptr;
  const LoadedKernel* const found = loaded_[device_index].load(std::memory_order_acquire);
  return found != nullptr && !found->context.expired() ? found : nullptr;
}

}  // namespace cox::detail
