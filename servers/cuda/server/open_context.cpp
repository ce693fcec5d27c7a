#include <coxswain/servers/cuda/server/open_context.hpp>

#include <coxswain/device_handle/base/call_error.hpp>
#include <coxswain/servers/cuda/driver/fault_report.hpp>

namespace cox::detail {

std::shared_ptr<CudaContext> open_context(DeviceId device, std::source_location site) {
  if (gpu_faulted()) throw_gpu_fault(site);
  auto context = CudaContext::find(device.index);
  if (context == nullptr) throw CallError(CallError::Kind::Closed, device.to_string() + " was shut down", site);
  return context;
}

}  // namespace cox::detail
