#pragma once

#include <coxswain/device_handle/queue/platform.hpp>

#include <sched.h>

#include <chrono>
#include <utility>

namespace cox {

/// A bounded spin: `while (!done()) if (!spin.spin_once()) break;`. For the first two microseconds it keeps the
/// processor, for low latency of a hot round trip. After that it yields the processor from time to time. Once another
/// thread has taken the processor, it yields between all polls, so that the awaited thread can run where threads
/// outnumber cores.
class SpinWait {
 public:
  /// Spins for about `limit` of real time; if it is zero, only for a few polls.
  explicit SpinWait(std::chrono::nanoseconds limit) noexcept : limit_(limit) {}

  /// One pause. Returns false when the limit has passed.
  [[nodiscard]] bool spin_once() noexcept {
    if (!contended_ && ++pauses_ % pauses_per_look != 0) {
      SystemPlatform::pause();
      return true;
    }
    const auto now = Clock::now();  // reading the clock costs as much as polling the queue: not at every pause
    if (std::exchange(fresh_, false)) {
      start_ = now;
      if (!contended_) offer_ = now + keep_processor;
    }
    if (now - start_ >= limit_) return false;
    if (now >= offer_) offer_processor(now);
    return true;
  }

  /// Starts the spin anew: the caller has found work.
  void restart() noexcept {
    pauses_ = 0;
    fresh_ = true;
    contended_ = false;
  }

  /// Yields the processor from the first poll on.
  void yield_immediately() noexcept {
    contended_ = true;
    offer_ = {};
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr unsigned pauses_per_look = 16;
  static constexpr std::chrono::nanoseconds keep_processor = std::chrono::microseconds(2);
  // A yield that lasts longer than this has given the processor to another thread. One that no thread uses costs about
  // a microsecond, so yields are rare.
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
  bool contended_ = false;  // another thread uses the processor
};

}  // namespace cox
