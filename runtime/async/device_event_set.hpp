#pragma once

#include <coxswain/device_handle/base/unique_function.hpp>
#include <coxswain/runtime/async/device_event.hpp>

#include <chrono>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace cox {

/// A set of events, which is reached when all of them are. They may belong to several devices. Used to wait for work
/// when no single stream is ordered after all of it. Any thread.
class DeviceEventSet final : public DeviceEvent, public std::enable_shared_from_this<DeviceEventSet> {
 public:
  using DeviceEvents = std::vector<std::shared_ptr<DeviceEvent>>;

  /// Precondition: at least one event.
  explicit DeviceEventSet(DeviceEvents device_events) noexcept : device_events_(std::move(device_events)) {}
  /// Returns the event itself if there is only one, else a set. Precondition: at least one event. Throws
  /// std::bad_alloc.
  template <class M>
  [[nodiscard]] static std::shared_ptr<DeviceEvent> make(std::vector<std::shared_ptr<M>> device_events) {
    if (device_events.size() == 1) return std::move(device_events.front());
    return std::make_shared<DeviceEventSet>(DeviceEvents(device_events.begin(), device_events.end()));
  }

  [[nodiscard]] bool reached() noexcept override;
  void wait() noexcept override;
  [[nodiscard]] bool wait_until(std::chrono::steady_clock::time_point deadline) noexcept override;
  /// Calls `function` on the helper thread of the last event's device.
  void notify(UniqueFunction<void()> function) override;

 private:
  using Function = std::shared_ptr<UniqueFunction<void()>>;
  void notify_from(std::size_t next, const Function& function);

  const DeviceEvents device_events_;
};

}  // namespace cox
