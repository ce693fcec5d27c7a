#pragma once

#include <coxswain/device_handle/block_pool.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace cox {

namespace detail {

/// What the machine offers, found out once by prepare_platform() before the first mailbox exists.
struct PlatformFacts {
  bool asymmetric_fence = false;  // membarrier(PRIVATE_EXPEDITED) works
  bool synchronised_tsc = false;  // all cores read one invariant time-stamp counter
};

inline constinit PlatformFacts platform_facts{};
inline constinit std::atomic<std::uint64_t> stamp_counter{1};
inline constinit std::atomic<bool> times_wanted{false};  // relaxed: a matter of time whom it reaches

/// A store-load fence without std::atomic_thread_fence, which ThreadSanitizer does not model.
inline void full_fence() noexcept {
  std::atomic<int> word{0};
  word.exchange(1, std::memory_order_seq_cst);
}

void membarrier_all_threads() noexcept;
void futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t expected) noexcept;
/// Like futex_wait, until `deadline` if there is one.
void futex_wait_until(const std::atomic<std::uint32_t>& word, std::uint32_t expected,
                      std::optional<std::chrono::steady_clock::time_point> deadline) noexcept;
void futex_wake(const std::atomic<std::uint32_t>& word, int threads) noexcept;

}  // namespace detail

/// What the lane and the mailbox ask of the machine. The interleaving explorer in tests/model has a platform of the
/// same shape, so that the very code that runs in production is the code that is explored.
struct SystemPlatform {
  template <class T>
  using atomic = std::atomic<T>;
  using BlockPool = cox::BlockPool;

  /// Rounds in a row in which a lane had nothing, after which it is not looked at any more until its owner says so. To
  /// leave a lane costs a heavy_barrier; to look at one that is idle costs every round a little.
  static constexpr std::uint32_t idle_rounds = 16'384;

  /// Where stamps need not be exact, one closure in so many has the clock read for it. A power of 2.
  static constexpr std::uint64_t stamps_per_tick = 8;

  /// Whether all shall have it read, since somebody asks when each was submitted.
  static bool times_wanted() noexcept { return detail::times_wanted.load(std::memory_order_relaxed); }

  /// The clock that closures are stamped by. If a stamp is read after an event that another thread's read preceded, it
  /// is larger: the time-stamp counter where the system vouches for it (rdtscp waits for earlier loads), else one
  /// shared counter.
  static std::uint64_t now() noexcept {
#if defined(__x86_64__)
    if (detail::platform_facts.synchronised_tsc) [[likely]] {
      unsigned processor = 0;
      return __rdtscp(&processor);
    }
#endif
    return detail::stamp_counter.fetch_add(1, std::memory_order_seq_cst);
  }

  /// A stamp that may be as old as the oldest load still under way: not after an event that the thread has just seen,
  /// but never in the future. Cheaper than now(), because the processor need not wait. Only where stamps_are_time().
  static std::uint64_t now_early() noexcept {
#if defined(__x86_64__)
    return __rdtsc();
#else
    return now();
#endif
  }

  /// Whether the clock runs by itself, rather than by being read.
  static bool clock_runs() noexcept { return detail::platform_facts.synchronised_tsc; }

  /// A stamp such that loads after it are not carried out before it was taken.
  static std::uint64_t now_fenced() noexcept {
    const std::uint64_t stamp = now();
#if defined(__x86_64__)
    _mm_lfence();
#endif
    return stamp;
  }

  /// The cheap and the expensive half of an asymmetric store-load fence: if one thread stores, then calls
  /// light_barrier, then loads, and another stores, then calls heavy_barrier, then loads, at least one of the two sees
  /// the other's store. The light half costs nothing where membarrier exists.
  [[gnu::always_inline]] static void light_barrier() noexcept {
    if (detail::platform_facts.asymmetric_fence) [[likely]] {
      std::atomic_signal_fence(std::memory_order_seq_cst);
    } else {
      detail::full_fence();
    }
  }
  static void heavy_barrier() noexcept { detail::membarrier_all_threads(); }

  /// Asks for the cache line at `address` for writing, ahead of the store: a line that another processor has read takes
  /// as long to get back as it takes to build several closures.
  static void prefetch_for_write(const void* address) noexcept {
#if defined(__x86_64__)
    asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(address)));  // the builtin needs -mprfchw for this
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
  /// The same, at most until `deadline`.
  static void park_until(atomic<std::uint32_t>& word, std::uint32_t expected,
                         std::chrono::steady_clock::time_point deadline) noexcept {
    detail::futex_wait_until(word, expected, deadline);
  }
  static void wake(atomic<std::uint32_t>& word) noexcept { detail::futex_wake(word, 1); }
  static void wake_all(atomic<std::uint32_t>& word) noexcept { detail::futex_wake(word, INT32_MAX); }
};

/// Finds out what the machine offers. Idempotent; called before the first device thread starts.
void prepare_platform() noexcept;

/// The calling thread by the system's number, as tools show it.
[[nodiscard]] std::uint32_t this_thread_number() noexcept;

/// True where stamps are ticks of the time-stamp counter, so that queue waits and run times can be measured with them.
[[nodiscard]] inline bool stamps_are_time() noexcept { return detail::platform_facts.synchronised_tsc; }

/// Nanoseconds per stamp tick, measured against the steady clock since prepare_platform(). 0 if stamps are no time.
[[nodiscard]] double nanoseconds_per_stamp() noexcept;

}  // namespace cox
