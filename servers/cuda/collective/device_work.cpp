#include <coxswain/servers/cuda/collective/device_work.hpp>

#include <map>
#include <mutex>
#include <utility>

namespace cox::detail {
namespace {

struct OpenDevices {
  struct Device {
    CudaStreams* streams;  // for calls on the device thread
    std::shared_ptr<PostQueue> posts;
  };
  std::mutex mutex;
  std::map<int, Device> by_ordinal;  // guarded by mutex
};

OpenDevices& open_devices() {
  static OpenDevices& devices = *new OpenDevices;  // never destroyed: usable while static objects are destroyed
  return devices;
}

}  // namespace

DeviceWork::DeviceWork(DeviceId device, CudaStreams& streams, std::shared_ptr<PostQueue> posts)
    : ordinal_(device.index), posts_(posts.get()) {
  OpenDevices& open = open_devices();
  const std::lock_guard lock(open.mutex);
  open.by_ordinal.insert_or_assign(ordinal_, OpenDevices::Device{&streams, std::move(posts)});
}

DeviceWork::~DeviceWork() {
  OpenDevices& open = open_devices();
  const std::lock_guard lock(open.mutex);
  const auto found = open.by_ordinal.find(ordinal_);
  if (found != open.by_ordinal.end() && found->second.posts.get() == posts_) open.by_ordinal.erase(found);
}

// The calls are made before the streams end, or dropped.
void DeviceWork::hold_while_busy(const std::vector<int>& ordinals, const std::shared_ptr<void>& token) {
  for (const int ordinal : ordinals) {
    OpenDevices& open = open_devices();
    const std::lock_guard lock(open.mutex);  // nothing is posted after ~DeviceWork
    const auto found = open.by_ordinal.find(ordinal);
    if (found == open.by_ordinal.end()) continue;
    found->second.posts->post([streams = found->second.streams, token] {
      try {
        streams->when_idle([token] {});
      } catch (...) {  // it cannot be found out
      }
    });
  }
}

}  // namespace cox::detail
