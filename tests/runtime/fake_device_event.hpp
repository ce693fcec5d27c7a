#pragma once

#include <coxswain/device_handle/base/unique_function.hpp>
#include <coxswain/runtime/async/device_event.hpp>

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <utility>
#include <vector>

namespace cox::test {

/// A device event that the test reaches: who asks to be told after that is told at once, on his own thread.
class FakeDeviceEvent final : public DeviceEvent {
 public:
  [[nodiscard]] bool reached() noexcept override {
    const std::lock_guard lock(mutex_);
    return reached_;
  }
  void wait() noexcept override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return reached_; });
  }
  [[nodiscard]] bool wait_until(std::chrono::steady_clock::time_point deadline) noexcept override {
    std::unique_lock lock(mutex_);
    return changed_.wait_until(lock, deadline, [this] { return reached_; });
  }
  void notify(UniqueFunction<void()> function) override {
    {
      const std::lock_guard lock(mutex_);
      if (!reached_) return functions_.push_back(std::move(function));
    }
    function();
  }

  void reach() {
    std::vector<UniqueFunction<void()>> functions;
    {
      const std::lock_guard lock(mutex_);
      reached_ = true;
      functions.swap(functions_);
      changed_.notify_all();
    }
    for (auto& function : functions) function();
  }
  [[nodiscard]] std::size_t listeners() {
    const std::lock_guard lock(mutex_);
    return functions_.size();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool reached_ = false;
  std::vector<UniqueFunction<void()>> functions_;
};

}  // namespace cox::test
