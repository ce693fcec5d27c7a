#pragma once

#include <coxswain/device_handle/queue/platform.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>

namespace cox::perf {

/// Where the one consumer of a lane waits for producers: it spins, then parks on a futex.
class ParkingSpot {
 public:
  ParkingSpot() { prepare_platform(); }

  /// Producer, after it published.
  void notify() noexcept {
    SystemPlatform::light_barrier();  // partner: the heavy barrier in wait
    if (parked_.load(std::memory_order_relaxed) != 0) wake();
  }

  /// Consumer: returns when `ready()` holds.
  template <class Ready>
  void wait(std::chrono::nanoseconds spin, Ready ready) {
    const auto end = std::chrono::steady_clock::now() + spin;
    do {
      for (int i = 0; i < 64; ++i) {
        if (ready()) return;
        SystemPlatform::pause();
      }
    } while (std::chrono::steady_clock::now() < end);
    for (;;) {
      parked_.store(1, std::memory_order_relaxed);
      SystemPlatform::heavy_barrier();  // partner: the light barrier in notify
      if (ready()) break;
      SystemPlatform::park(parked_, 1);
      if (ready()) break;
    }
    parked_.store(0, std::memory_order_relaxed);
  }

 private:
  [[gnu::noinline]] void wake() noexcept {
    if (parked_.exchange(0, std::memory_order_relaxed) != 0) SystemPlatform::wake(parked_);
  }

  alignas(64) std::atomic<std::uint32_t> parked_{0};  // alone on its line: producers read it on every push
  [[maybe_unused]] char padding_[60] = {};
};

}  // namespace cox::perf
