#pragma once

#include <coxswain/device_handle/queue/platform.hpp>

#include <atomic>
#include <cstdint>
#include <thread>

namespace cox::perf {

/// Two threads and two futex words, nothing else: what any wake-up of a parked thread costs on this machine.
class BareFutex {
 public:
  BareFutex() : thread_([this] { answer(); }) {}
  ~BareFutex() {
    stopping_.store(true, std::memory_order_relaxed);
    round_trip();
    thread_.join();
  }

  /// Wakes the other thread and sleeps until it answered.
  void round_trip() {
    const std::uint32_t answered = answer_.load(std::memory_order_relaxed);
    request_.fetch_add(1, std::memory_order_release);
    SystemPlatform::wake(request_);
    while (answer_.load(std::memory_order_acquire) == answered) SystemPlatform::park(answer_, answered);
  }

 private:
  void answer() {
    bool last = false;
    for (std::uint32_t seen = 0; !last; ++seen) {
      while (request_.load(std::memory_order_acquire) == seen) SystemPlatform::park(request_, seen);
      last = stopping_.load(std::memory_order_relaxed);  // ordered by the request: set before the last one
      answer_.fetch_add(1, std::memory_order_release);
      SystemPlatform::wake(answer_);
    }
  }

  alignas(64) std::atomic<std::uint32_t> request_{0};
  alignas(64) std::atomic<std::uint32_t> answer_{0};
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace cox::perf
