#if COX_CUDA_TESTS

#include <coxswain/tests/servers/contract/cuda_fleet.hpp>

#include <coxswain/servers/cuda/device/cuda_context.hpp>

#include <memory>

namespace cox::test {

void CudaFleet::keep_contexts() {
  static const auto& kept = *new auto([] {
    std::vector<std::shared_ptr<detail::CudaContext>> contexts;
    for (const DeviceId device : enumerate_cuda_devices()) contexts.push_back(detail::CudaContext::open(device.index));
    return contexts;
  }());
  static_cast<void>(kept);
}

}  // namespace cox::test

#endif
