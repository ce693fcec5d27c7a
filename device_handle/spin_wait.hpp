#pragma once

#include <coxswain/device_handle/platform.hpp>

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace cox {

/// A bounded spin: `while (!done()) if (!spin.again()) break;`. For the first two microseconds it keeps the processor,
/// which is what a hot round trip wants; then it offers the processor to other threads between looks, so that where
/// threads outnumber cores the one that is waited for can run.
class SpinWait {
 public:
  /// Keeps on for about `limit` of real time; zero: only a few looks.
  explicit SpinWait(std::chrono::nanoseconds limit) noexcept : limit_(limit) {}

  /// One pause. False when the time is up.
  [[nodiscard]] bool again() noexcept {
    if (!yielding_ && ++pauses_ % pauses_per_look != 0) {
      SystemPlatform::pause();
      return true;
    }
    const auto now = Clock::now();  // the clock costs as much as a look at the queue: not at every pause
    if (std::exchange(fresh_, false)) start_ = now;
    yielding_ = yielding_ || now - start_ >= std::min(limit_, keep_processor);
    if (now - start_ >= limit_) return false;
    if (yielding_) sched_yield();
    return true;
  }

  /// As new: there was something.
  void restart() noexcept {
    pauses_ = 0;
    fresh_ = true;
    yielding_ = false;
  }

  /// Offers the processor to others from the first look on.
  void yield_at_once() noexcept { yielding_ = true; }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr unsigned pauses_per_look = 16;
  static constexpr std::chrono::nanoseconds keep_processor = std::chrono::microseconds(2);

  std::chrono::nanoseconds limit_;
  Clock::time_point start_;
  unsigned pauses_ = 0;
  bool fresh_ = true;  // start_ is not set yet
  bool yielding_ = false;
};

}  // namespace cox
