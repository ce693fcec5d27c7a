#pragma once

#include <coxswain/device_handle/base/visibility.hpp>
#include <coxswain/device_handle/queue/asymmetric_fence.hpp>
#include <coxswain/device_handle/queue/block_pool.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace cox {

namespace detail {

/// The clock that stamps are read from: the time-stamp counter (TSC) while all cores read one invariant counter, else
/// `stamp_counter`. Set by prepare_platform(). distrust_clock() clears both flags for good: the one of pushes first,
/// the one of device threads when no push that reads the TSC can begin any more. distrust_clock() explains the memory
/// orders.
struct StampClock {
  std::atomic<bool> pushes_read_tsc{false};
  std::atomic<bool> device_threads_read_tsc{false};
};

COX_VISIBILITY_DEFAULT inline constinit StampClock stamp_clock{};
/// Starts above any value that the time-stamp counter reaches in years, so that stamps of this counter are larger than
/// all stamps of the time-stamp counter.
COX_VISIBILITY_DEFAULT inline constinit std::atomic<std::uint64_t> stamp_counter{std::uint64_t{1} << 60};
/// relaxed: threads may see it late.
COX_VISIBILITY_DEFAULT inline constinit std::atomic<bool> timing_requested{false};

/// A store-load fence without std::atomic_thread_fence, which ThreadSanitizer does not model.
inline void full_fence() noexcept {
  std::atomic<int> word{0};
  word.exchange(1, std::memory_order_seq_cst);
}

/// membarrier, for AsymmetricFence.
struct MembarrierMachine {
  template <class T>
  using atomic = std::atomic<T>;
  static bool fence_all_threads() noexcept;
  static void full_fence() noexcept { detail::full_fence(); }
  static void drain_stores() noexcept;
};

COX_VISIBILITY_DEFAULT inline constinit AsymmetricFence<MembarrierMachine> asymmetric_fence{};

/// Stops using the time-stamp counter, for good. Any thread, idempotent. Does not block, unless the kernel refuses
/// membarrier for the first time.
void distrust_clock() noexcept;

/// The kernel's clock source. The kernel uses the time-stamp counter only while it finds it invariant and equal on all
/// cores.
inline constexpr const char* clock_source_file = "/sys/devices/system/clocksource/clocksource0/current_clocksource";

/// Calls distrust_clock() if `file` can be read and names a clock source other than the time-stamp counter.
void check_clock_source(const char* file) noexcept;
/// Calls check_clock_source(clock_source_file), at most once a minute in the process.
void check_clock_source_periodically() noexcept;

void futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t expected) noexcept;
/// Like futex_wait, but returns at `deadline` if there is one.
void futex_wait_until(const std::atomic<std::uint32_t>& word, std::uint32_t expected,
                      std::optional<std::chrono::steady_clock::time_point> deadline) noexcept;
void futex_wake(const std::atomic<std::uint32_t>& word, int threads) noexcept;

}  // namespace detail

/// What the lane and the mailbox need from the machine. The interleaving explorer in tests/model has a platform of the
/// same shape, so it explores the same code that runs in production.
struct SystemPlatform {
  template <class T>
  using atomic = std::atomic<T>;
  using BlockPool = cox::BlockPool;

  /// The number of consecutive rounds in which a lane was empty after which the device thread stops polling it, until
  /// the lane's owner announces it again. To stop polling costs a heavy_barrier; to poll an idle lane costs a little in
  /// every round.
  static constexpr std::uint32_t idle_rounds = 16'384;

  /// Where stamps need not be exact, the clock is read for one closure out of this many. A power of 2.
  static constexpr std::uint64_t stamps_per_tick = 8;

  /// Whether the clock is read for every closure, because a tracer needs the submission time of each.
  static bool timing_requested() noexcept { return detail::timing_requested.load(std::memory_order_relaxed); }

  /// The clock for stamps. If another thread's read happens before this read, this stamp is the larger one. The clock
  /// is the time-stamp counter where the kernel trusts it (rdtscp waits for earlier loads), else one shared counter.
  static std::uint64_t now() noexcept {
#if defined(__x86_64__)
    if (detail::stamp_clock.pushes_read_tsc.load(std::memory_order_relaxed)) [[likely]]
      return read_tsc();
#endif
    return detail::stamp_counter.fetch_add(1, std::memory_order_seq_cst);
  }

  /// A stamp that may be as old as the oldest load in flight: it may precede an event that the thread has just seen,
  /// but it is never in the future. Faster than now(), because the processor need not wait for earlier loads. Only
  /// where stamps_are_time().
  static std::uint64_t now_early() noexcept {
#if defined(__x86_64__)
    return __rdtsc();
#else
    return now();
#endif
  }

  /// Whether the clock advances on its own. The shared counter advances only when it is read.
  static bool clock_runs() noexcept { return detail::stamp_clock.pushes_read_tsc.load(std::memory_order_relaxed); }

  /// A stamp for the device thread. Loads after this call are executed after the stamp was taken.
  static std::uint64_t now_fenced() noexcept {
#if defined(__x86_64__)
    // acquire: pairs with distrust_clock()
    const bool tsc = detail::stamp_clock.device_threads_read_tsc.load(std::memory_order_acquire);
    const std::uint64_t stamp = tsc ? read_tsc() : detail::stamp_counter.fetch_add(1, std::memory_order_seq_cst);
    _mm_lfence();
    return stamp;
#else
    return now();
#endif
  }

  /// The largest number of ticks by which a clock reading may be less than an earlier reading on another processor. If
  /// the difference is larger, the clock was set back: the machine was suspended, or the process was restored on
  /// another machine.
  static constexpr std::uint64_t clock_tolerance = std::uint64_t{1} << 20;

  /// Called when the clock was set back: no further stamp is read from it.
  static void distrust_clock() noexcept { detail::distrust_clock(); }
  /// Called by a device thread that is about to sleep.
  static void check_clock() noexcept { detail::check_clock_source_periodically(); }

  /// The two halves of an asymmetric store-load fence; see AsymmetricFence. The light half costs nothing where the
  /// kernel has membarrier.
  [[gnu::always_inline]] static void light_barrier() noexcept { detail::asymmetric_fence.light(); }
  static void heavy_barrier() noexcept { detail::asymmetric_fence.heavy(); }

  /// Prefetches the cache line at `address` for writing. Without it, a store to a line that another processor has read
  /// takes as long as building several closures.
  static void prefetch_for_write(const void* address) noexcept {
#if defined(__x86_64__)
    asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(address)));  // the builtin needs -mprfchw for it
#else
    __builtin_prefetch(address, 1);
#endif
  }

  /// One spin iteration.
  static void pause() noexcept {
#if defined(__x86_64__)
    _mm_pause();
#elif defined(__aarch64__)
    asm volatile("isb" ::: "memory");
#endif
  }

  /// Blocks while `word` holds `expected`; may return early.
  static void park(atomic<std::uint32_t>& word, std::uint32_t expected) noexcept { detail::futex_wait(word, expected); }
  /// Like park(), but returns at `deadline` at the latest.
  static void park_until(atomic<std::uint32_t>& word, std::uint32_t expected,
                         std::chrono::steady_clock::time_point deadline) noexcept {
    detail::futex_wait_until(word, expected, deadline);
  }
  static void wake(atomic<std::uint32_t>& word) noexcept { detail::futex_wake(word, 1); }
  static void wake_all(atomic<std::uint32_t>& word) noexcept { detail::futex_wake(word, INT32_MAX); }

#if defined(__x86_64__)
 private:
  static std::uint64_t read_tsc() noexcept {
    unsigned processor = 0;
    return __rdtscp(&processor);
  }
#endif
};

/// Detects what the machine supports. Idempotent; called before the first device thread starts.
void prepare_platform() noexcept;

/// The calling thread's number in the system (gettid), as tools show it.
[[nodiscard]] std::uint32_t this_thread_number() noexcept;

/// True while stamps are ticks of the time-stamp counter, so that queue waits and run times can be measured with them.
[[nodiscard]] inline bool stamps_are_time() noexcept { return SystemPlatform::clock_runs(); }

/// Nanoseconds per stamp tick, measured against the steady clock since prepare_platform(). 0 if stamps are not time.
[[nodiscard]] double nanoseconds_per_stamp() noexcept;

}  // namespace cox
