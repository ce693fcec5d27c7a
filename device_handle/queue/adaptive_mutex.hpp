#pragma once

#include <coxswain/device_handle/queue/platform.hpp>

#include <atomic>
#include <cstdint>

namespace cox::detail {

/// A mutex for critical sections of less than a microsecond that several device threads enter at the same time. A
/// thread that finds it locked spins for a while before it sleeps, since a wake-up takes far longer than the wait.
/// Spinning only reads, so that it does not take the cache line away from the thread that is about to unlock. Meets the
/// standard Lockable requirements; not recursive. Any thread.
class AdaptiveMutex {
 public:
  AdaptiveMutex() noexcept = default;
  AdaptiveMutex(const AdaptiveMutex&) = delete;
  AdaptiveMutex& operator=(const AdaptiveMutex&) = delete;

  void lock() noexcept {
    for (int spins = 0; spins < max_spins; ++spins) {
      if (try_lock()) return;
      SystemPlatform::pause();
    }
    while (state_.exchange(contended, std::memory_order_acquire) != unlocked) state_.wait(contended);
  }
  [[nodiscard]] bool try_lock() noexcept {
    std::uint32_t expected = unlocked;
    return state_.load(std::memory_order_relaxed) == unlocked &&
           state_.compare_exchange_strong(expected, locked, std::memory_order_acquire, std::memory_order_relaxed);
  }
  void unlock() noexcept {
    if (state_.exchange(unlocked, std::memory_order_release) == contended) state_.notify_one();
  }

 private:
  static constexpr int max_spins = 100;  // a few microseconds
  static constexpr std::uint32_t unlocked = 0;
  static constexpr std::uint32_t locked = 1;
  static constexpr std::uint32_t contended = 2;  // locked, and a thread may be asleep

  std::atomic<std::uint32_t> state_{unlocked};
};

}  // namespace cox::detail
