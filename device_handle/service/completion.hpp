#pragma once

#include <coxswain/device_handle/queue/platform.hpp>

#include <chrono>
#include <cstdint>
#include <optional>

namespace cox {

/// One event, signalled once by one thread and awaited by one other thread. The waiting thread spins for a while, then
/// sleeps on a futex. May be destroyed as soon as wait() has returned.
class Completion {
 public:
  /// Any thread. Everything done before is visible to the thread whose wait returns.
  void signal() noexcept {
    // acq_rel: publishes the outcome to wait(). After the exchange `this` may have been destroyed; its address is only
    // a futex key.
    if (word_.exchange(signalled, std::memory_order_acq_rel) == sleeping) SystemPlatform::wake(word_);
  }

  [[nodiscard]] bool done() const noexcept { return word_.load(std::memory_order_acquire) == signalled; }

  /// Blocks until signalled. Spins for up to `spin` first; with zero, hardly at all.
  void wait(std::chrono::nanoseconds spin) noexcept;

  /// Blocks until signalled or until `deadline`. Returns whether it was signalled.
  bool wait_until(std::chrono::steady_clock::time_point deadline) noexcept;

  /// Makes a waiting thread check its `interrupted` again; see wait_until.
  void interrupt() noexcept {
    std::uint32_t expected = sleeping;
    if (word_.compare_exchange_strong(expected, idle, std::memory_order_acq_rel)) SystemPlatform::wake(word_);
  }

  /// Like wait_until, but also returns when `interrupted()` is true. The thread that makes it true then calls
  /// interrupt().
  template <class Interrupted>
  bool wait_until(std::optional<std::chrono::steady_clock::time_point> deadline, Interrupted&& interrupted) noexcept {
    for (;;) {
      if (done()) return true;
      if (deadline && std::chrono::steady_clock::now() >= *deadline) return done();
      std::uint32_t expected = idle;
      word_.compare_exchange_strong(expected, sleeping, std::memory_order_acq_rel);
      if (interrupted()) return done();  // after the announcement: a later interrupt() ends the sleep
      if (!done()) detail::futex_wait_until(word_, sleeping, deadline);
    }
  }

 private:
  static constexpr std::uint32_t idle = 0;
  static constexpr std::uint32_t sleeping = 1;
  static constexpr std::uint32_t signalled = 2;

  std::atomic<std::uint32_t> word_{idle};
};

}  // namespace cox
