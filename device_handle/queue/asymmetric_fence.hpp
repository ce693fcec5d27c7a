#pragma once

#include <atomic>

namespace cox {

/// The two halves of an asymmetric store-load fence. If one thread stores, calls light(), then loads, and another
/// thread stores, calls heavy(), then loads, at least one of the two sees the other's store. If the machine can fence
/// all threads at once, light() orders only the compiler; otherwise both halves are full fences.
///
/// The machine may start to refuse the heavy half while the process runs, for example because a seccomp filter was
/// installed after the first device was opened. From then on light() is a full fence. Calls of light() that have read
/// the old flag do not fence. Therefore the heavy() call that is refused waits until their stores have reached the
/// other processors.
///
///     [light is free] -- refused --> [light fences, old stores may be in flight] -- stores have arrived --> [settled]
///
/// `Machine` has atomic<T>, fence_all_threads() -> bool, full_fence() and drain_stores().
template <class Machine>
class AsymmetricFence {
 public:
  /// `available`: the machine can fence all threads at once. Called once, before any other thread uses the fence.
  void start(bool available) noexcept {
    light_is_free_.store(available, std::memory_order_relaxed);
    settled_.store(!available, std::memory_order_relaxed);
  }

  [[gnu::always_inline]] void light() const noexcept {
    std::atomic_signal_fence(std::memory_order_seq_cst);  // the flag is read after the caller's store was issued
    if (light_is_free_.load(std::memory_order_relaxed)) [[likely]] {
      std::atomic_signal_fence(std::memory_order_seq_cst);
    } else {
      Machine::full_fence();
    }
  }

  /// Blocks for about 10 ms when the machine refuses for the first time.
  void heavy() noexcept {
    if (!settled_.load(std::memory_order_acquire)) {  // pairs with the store below
      if (Machine::fence_all_threads()) return;
      light_is_free_.store(false, std::memory_order_relaxed);
      Machine::full_fence();
      Machine::drain_stores();
      settled_.store(true, std::memory_order_release);
    }
    Machine::full_fence();
  }

  /// Whether light() orders the compiler only.
  [[nodiscard]] bool light_is_free() const noexcept { return light_is_free_.load(std::memory_order_relaxed); }

 private:
  typename Machine::template atomic<bool> light_is_free_{false};
  typename Machine::template atomic<bool> settled_{true};  // heavy() no longer calls fence_all_threads()
};

}  // namespace cox
