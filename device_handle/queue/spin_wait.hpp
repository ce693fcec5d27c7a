#pragma once

#include <coxswain/device_handle/queue/platform.hpp>

#include <sched.h>

#include <chrono>
#include <utility>

namespace cox {

/// A bounded spin: `while (!done()) if (!spin.again()) break;`. For the first two microseconds it keeps the processor,
/// which is what a hot round trip wants; then it offers it to other threads now and then, and, once somebody has taken
/// it, between all looks, so that where threads outnumber cores the one that is waited for can run.
class SpinWait {
 public:
  /// Keeps on for about `limit` of real time; zero: only a few looks.
  explicit SpinWait(std::chrono::nanoseconds limit) noexcept : limit_(limit) {}

  /// One pause. False when the time is up.
  [[nodiscard]] bool spin_once() noexcept {
    if (!contended_ && ++pauses_ % pauses_per_look != 0) {
      SystemPlatform::pause();
      return true;
    }
    const auto now = Clock::now();  // the clock costs as much as a look at the queue: not at every pause
    if (std::exchange(fresh_, false)) {
      start_ = now;
      if (!contended_) offer_ = now + keep_processor;
    }
    if (now - start_ >= limit_) return false;
    if (now >= offer_) offer_processor(now);
    return true;
  }

  /// As new: there was something.
  void restart() noexcept {
    pauses_ = 0;
    fresh_ = true;
    contended_ = false;
  }

  /// Offers the processor to others from the first look on.
  void yield_immediately() noexcept {
    contended_ = true;
    offer_ = {};
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr unsigned pauses_per_look = 16;
  static constexpr std::chrono::nanoseconds keep_processor = std::chrono::microseconds(2);
  // A yield that lasts longer was taken; one that nobody takes costs about a microsecond, so there are few.
  static constexpr std::chrono::nanoseconds taken = std::chrono::microseconds(2);
  static constexpr std::chrono::nanoseconds between_offers = std::chrono::microseconds(5);

  void offer_processor(Clock::time_point now) noexcept {
    sched_yield();
    if (contended_) return;
    const auto after = Clock::now();
    contended_ = after - now > taken;
    offer_ = after + (contended_ ? std::chrono::nanoseconds(0) : between_offers);
  }

  std::chrono::nanoseconds limit_;
  Clock::time_point start_;
  Clock::time_point offer_;
  unsigned pauses_ = 0;
  bool fresh_ = true;       // start_ is not set yet
  bool contended_ = false;  // somebody else wants the processor
};

}  // namespace cox
