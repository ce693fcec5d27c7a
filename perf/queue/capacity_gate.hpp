#pragma once

#include <coxswain/device_handle/queue/platform.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace cox::perf {

/// Holds producers back while a lane is full. Positions count closures (or slots) from the lane's beginning.
class CapacityGate {
 public:
  /// A `capacity` of 0 never holds anyone back.
  explicit CapacityGate(std::size_t capacity) : capacity_(capacity) {}

  /// Producer: blocks until fewer than `capacity` closures of `size` positions each are queued before `position`.
  void pass(std::uint64_t position, std::uint64_t size = 1) {
    const std::uint64_t limit = capacity_ * size;
    if (limit != 0 && position - consumed_.load(std::memory_order_acquire) >= limit) [[unlikely]]
      wait(position, limit);
  }

  /// Consumer: all before `position` is done. To be told at least every 64 closures; who waits is woken when the lane
  /// is half empty.
  void consumed(std::uint64_t position) {
    if (capacity_ == 0) return;
    consumed_.exchange(position, std::memory_order_seq_cst);  // partner: the load in wait
    if (position < wake_at_.load(std::memory_order_seq_cst)) return;
    wake_at_.exchange(nobody, std::memory_order_seq_cst);
    turn_.fetch_add(1, std::memory_order_release);
    SystemPlatform::wake_all(turn_);
  }

 private:
  static constexpr std::uint64_t nobody = ~std::uint64_t{0};

  [[gnu::noinline]] void wait(std::uint64_t position, std::uint64_t limit) {
    for (;;) {
      const std::uint32_t turn = turn_.load(std::memory_order_acquire);
      std::uint64_t earliest = wake_at_.load(std::memory_order_seq_cst);
      const std::uint64_t half_empty = position - limit / 2;
      while (half_empty < earliest && !wake_at_.compare_exchange_weak(earliest, half_empty)) continue;
      if (position - consumed_.load(std::memory_order_seq_cst) < limit) return;  // partner: exchange in consumed
      SystemPlatform::park(turn_, turn);
    }
  }

  const std::uint64_t capacity_;
  alignas(64) std::atomic<std::uint64_t> consumed_{0};  // own line: read on every push, written every 64 closures
  alignas(64) std::atomic<std::uint64_t> wake_at_{nobody};
  std::atomic<std::uint32_t> turn_{0};
};

}  // namespace cox::perf
