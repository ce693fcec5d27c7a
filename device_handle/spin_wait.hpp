#pragma once

#include <coxswain/device_handle/platform.hpp>

#include <sched.h>

#include <algorithm>
#include <chrono>

namespace cox {

/// A bounded spin: `while (!done()) if (!spin.again()) break;`. For the first few microseconds it keeps the processor,
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
    if (pauses_ == pauses_per_look) start_ = now;
    yielding_ = now - start_ >= std::min(limit_, keep_processor);
    if (now - start_ >= limit_) return false;
    if (yielding_) sched_yield();
    return true;
  }

  /// As new: there was something.
  void restart() noexcept {
    pauses_ = 0;
    yielding_ = false;
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr unsigned pauses_per_look = 16;
  static constexpr std::chrono::nanoseconds keep_processor = std::chrono::microseconds(5);

  std::chrono::nanoseconds limit_;
  Clock::time_point start_;
  unsigned pauses_ = 0;
  bool yielding_ = false;
};

}  // namespace cox
