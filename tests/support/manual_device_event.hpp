#pragma once

#include <coxswain/runtime/async/device_event.hpp>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <stdexcept>

namespace cox::test {

/// A place in a device's work to which it comes when the test says so.
class ManualDeviceEvent final : public DeviceEvent {
 public:
  bool reached() noexcept override {
    const std::lock_guard lock(mutex_);
    return reached_;
  }
  void wait() noexcept override { static_cast<void>(wait_until(std::chrono::steady_clock::time_point::max())); }
  bool wait_until(std::chrono::steady_clock::time_point deadline) noexcept override {
    std::unique_lock lock(mutex_);
    while (!reached_ && std::chrono::steady_clock::now() < deadline)
      changed_.wait_until(lock, std::min(deadline, std::chrono::steady_clock::now() + std::chrono::seconds(1)));
    return reached_;
  }
  void notify(UniqueFunction<void()>) override { throw std::logic_error("nobody asks for that"); }
  void reach() noexcept {
    const std::lock_guard lock(mutex_);
    reached_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool reached_ = false;
};

}  // namespace cox::test
