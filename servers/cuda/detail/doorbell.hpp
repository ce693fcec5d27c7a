#pragma once

#include <coxswain/device_handle/device_id.hpp>
#include <coxswain/runtime/unique_function.hpp>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>

namespace cox::detail {

/// How the threads of a device (the poller, those that copy) have its device thread look what has become possible.
/// Rings that come before it has looked are one.
class Doorbell {
 public:
  /// On the device thread of `device`, or where that is inline. `answer`: what the device thread does.
  Doorbell(DeviceId device, std::function<void()> answer);
  Doorbell(const Doorbell&) = delete;
  Doorbell& operator=(const Doorbell&) = delete;

  /// Any thread. Does not block, but for a device that is inline.
  void ring() noexcept;
  /// Nobody answers any more. Device thread.
  void mute() noexcept;

 private:
  struct Shared {
    std::function<void()> answer;  // device thread; empty: muted
    std::atomic<bool> rung{false};
  };
  std::shared_ptr<Shared> shared_;
  std::function<void()> submit_;
};

}  // namespace cox::detail
