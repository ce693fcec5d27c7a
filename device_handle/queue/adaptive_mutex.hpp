#pragma once

#include <coxswain/device_handle/queue/platform.hpp>

#include <atomic>
#include <cstdint>

namespace cox::detail {

/// A mutex for sections that take less than a microsecond, which several device threads come to at the same time: who
/// finds it locked looks again for a while before it sleeps, since to be woken takes far longer than the wait. A look
/// only reads, so that it does not take the line of memory away from who is about to unlock. Lockable as the standard
/// has it; not recursive. Any thread.
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
  static constexpr std::uint32_t contended = 2;  // locked, and somebody may be asleep

  std::atomic<std::uint32_t> state_{unlocked};
};

}  // namespace cox::detail
