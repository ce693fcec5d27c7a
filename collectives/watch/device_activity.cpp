#include <coxswain/collectives/watch/device_activity.hpp>

#include <coxswain/device_handle/registry/registry.hpp>
#include <coxswain/device_handle/thread/device_thread.hpp>

#include <fmt/format.h>

#include <cstddef>

namespace cox {

std::string device_activity(DeviceId device) {
  const auto thread = Registry<DeviceThread>::find(device, Stage::Downstream);
  if (thread == nullptr) return "the device is not open";
  const std::size_t depth = thread->statistics().depth;
  if (!thread->running().in_task())
    return depth == 0 ? "idle, nothing queued" : fmt::format("between tasks, {} queued", depth);
  return fmt::format("in task {}, {} queued after it", thread->running().to_string(), depth > 0 ? depth - 1 : 0);
}

}  // namespace cox
