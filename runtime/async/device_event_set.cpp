#include <coxswain/runtime/async/device_event_set.hpp>

#include <algorithm>

namespace cox {

bool DeviceEventSet::reached() noexcept {
  return std::ranges::all_of(device_events_, [](const auto& device_event) { return device_event->reached(); });
}

void DeviceEventSet::wait() noexcept {
  for (const auto& device_event : device_events_) device_event->wait();
}

bool DeviceEventSet::wait_until(std::chrono::steady_clock::time_point deadline) noexcept {
  return std::ranges::all_of(device_events_,
                             [&](const auto& device_event) { return device_event->wait_until(deadline); });
}

void DeviceEventSet::notify(UniqueFunction<void()> function) {
  notify_from(0, std::make_shared<UniqueFunction<void()>>(std::move(function)));
}

// Awaits the events one after the other; the callback of the last one calls `function`.
void DeviceEventSet::notify_from(std::size_t next, const Function& function) {
  device_events_[next]->notify([self = shared_from_this(), next, function] {
    if (next + 1 < self->device_events_.size()) {
      try {
        return self->notify_from(next + 1, function);
      } catch (...) {  // no memory for the next callback: wait on this thread
        self->wait();
      }
    }
    (*function)();
  });
}

}  // namespace cox
