#include <coxswain/device_handle/device_thread_options.hpp>

#include <map>
#include <mutex>
#include <utility>

namespace cox {
namespace {

struct Settings {
  std::mutex mutex;
  DeviceThreadOptions standard;
  std::map<DeviceId, DeviceThreadOptions> per_device;
};

Settings& settings() {
  static auto& instance = *new Settings;  // never destroyed: devices may be opened from static destructors
  return instance;
}

}  // namespace

void set_device_thread_options(DeviceId device, DeviceThreadOptions options) {
  const std::scoped_lock lock(settings().mutex);
  settings().per_device.insert_or_assign(device, std::move(options));
}

void set_default_device_thread_options(DeviceThreadOptions options) {
  const std::scoped_lock lock(settings().mutex);
  settings().standard = std::move(options);
}

DeviceThreadOptions device_thread_options(DeviceId device) {
  const std::scoped_lock lock(settings().mutex);
  const auto found = settings().per_device.find(device);
  return found == settings().per_device.end() ? settings().standard : found->second;
}

}  // namespace cox
