#include <engine/backends.hpp>
#include <engine/devices.hpp>

#include <coxswain/collectives/discovery/discover.hpp>

#include <vector>

namespace train {

#ifdef TRAIN_CUDA
static_assert(cuda_type == cox::cuda_device_type);
#endif

std::size_t first_device(const Options& options) {
  if (options.device_type == host_type) return 0;
  return cox::discover().local_process.value_or(0) * options.local_devices;
}

std::string missing_devices(const Options& options) {
  if (options.device_type == host_type) return {};
#ifdef TRAIN_CUDA
  const std::size_t count = cox::enumerate_cuda_devices().size();
  if (count >= options.first_device + options.local_devices) return {};
  if (count == 0) return "there is no GPU: " + cox::why_no_cuda();
  return "this machine has " + std::to_string(count) + (count == 1 ? " GPU" : " GPUs");
#else
  return "this program was built without support for GPUs: the installed coxswain has no library 'cuda'";
#endif
}

std::vector<cox::DeviceId> local_devices(const Options& options) {
  std::vector<cox::DeviceId> devices;
  for (std::size_t i = 0; i < options.local_devices; ++i)
    devices.push_back({options.device_type, static_cast<std::uint16_t>(options.first_device + i)});
  return devices;
}

cox::CommunicationId devices_of(const Options& options) { return local_devices(options); }

}  // namespace train
