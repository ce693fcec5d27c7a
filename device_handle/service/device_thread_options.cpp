#include <coxswain/device_handle/service/device_thread_options.hpp>

#include <map>
#include <mutex>
#include <utility>

namespace cox {
namespace {

struct Chosen {
  std::mutex mutex;
  DeviceThreadOptions standard;
  bool standard_chosen = false;  // by set_default_device_thread_options
  std::map<DeviceId, DeviceThreadOptions> per_device;
};

Chosen& chosen() {
  static auto& instance = *new Chosen;  // never destroyed: devices may be opened from static destructors
  return instance;
}

}  // namespace

void set_device_thread_options(DeviceId device, DeviceThreadOptions options) {
  const std::scoped_lock lock(chosen().mutex);
  chosen().per_device.insert_or_assign(device, std::move(options));
}

void set_default_device_thread_options(DeviceThreadOptions options) {
  const std::scoped_lock lock(chosen().mutex);
  chosen().standard = std::move(options);
  chosen().standard_chosen = true;
}

void offer_default_device_thread_options(DeviceThreadOptions options) {
  const std::scoped_lock lock(chosen().mutex);
  if (!chosen().standard_chosen) chosen().standard = std::move(options);
}

DeviceThreadOptions device_thread_options(DeviceId device) {
  const std::scoped_lock lock(chosen().mutex);
  const auto found = chosen().per_device.find(device);
  return found == chosen().per_device.end() ? chosen().standard : found->second;
}

}  // namespace cox
