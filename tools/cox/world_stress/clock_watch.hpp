#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace cox::stress {

/// Measures for how long a thread of this process that wants to run was not run.
class ClockWatch {
 public:
  using Clock = std::chrono::steady_clock;

  ClockWatch() : thread_([this] { run(); }) {}
  ClockWatch(const ClockWatch&) = delete;
  ClockWatch& operator=(const ClockWatch&) = delete;
  ~ClockWatch() {
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  /// The longest time so far.
  [[nodiscard]] Clock::duration longest() const noexcept { return longest_.load(std::memory_order_relaxed); }

 private:
  void run() {
    constexpr std::chrono::milliseconds step{10};
    std::unique_lock lock(mutex_);
    while (!ends_) {
      const Clock::time_point due = Clock::now() + step;
      changed_.wait_until(lock, due, [this] { return ends_; });
      longest_.store(std::max(longest_.load(std::memory_order_relaxed), Clock::now() - due), std::memory_order_relaxed);
    }
  }

  std::atomic<Clock::duration> longest_{Clock::duration::zero()};  // relaxed: only a time
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ends_ = false;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace cox::stress
