#include <coxswain/servers/cuda/kernel/kernel_definition.hpp>

#include <coxswain/servers/cuda/kernel/kernel_loader.hpp>

namespace cox::detail {

void KernelDefinition::prepare(std::uint16_t device_index) const noexcept {
  if (loaded(device_index) != nullptr || device_index >= max_devices) return;
  const std::lock_guard lock(mutex_);
  if (loaded(device_index) != nullptr) return;
  try {
    const std::shared_ptr<const CudaContext> context = CudaContext::find(device_index);
    if (!context) return;
    kept_.push_back(std::make_unique<const LoadedKernel>(load_kernel(*this, context)));
    loaded_[device_index].store(kept_.back().get(), std::memory_order_release);
  } catch (...) {  // no memory even to keep the failure: the next launch tries again
  }
}

const LoadedKernel* KernelDefinition::loaded(std::uint16_t device_index) const noexcept {
  if (device_index >= max_devices) return nullptr;
  const LoadedKernel* const found = loaded_[device_index].load(std::memory_order_acquire);
  return found != nullptr && !found->context.expired() ? found : nullptr;
}

}  // namespace cox::detail
