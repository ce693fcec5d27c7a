#include <coxswain/device_handle/platform.hpp>

#include <linux/futex.h>
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <mutex>

namespace cox {
namespace {

using SteadyClock = std::chrono::steady_clock;

struct Epoch {
  SteadyClock::time_point time;
  std::uint64_t stamp = 0;
};
Epoch epoch;

long membarrier(int command) noexcept { return syscall(SYS_membarrier, command, 0, 0); }

bool register_membarrier() noexcept {
  const long supported = membarrier(MEMBARRIER_CMD_QUERY);
  return supported > 0 && (supported & MEMBARRIER_CMD_PRIVATE_EXPEDITED) != 0 &&
         membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0;
}

// The kernel makes the time-stamp counter its clock source only while it finds it invariant and equal on all cores.
bool kernel_trusts_tsc() noexcept {
#if defined(__x86_64__)
  std::FILE* file = std::fopen("/sys/devices/system/clocksource/clocksource0/current_clocksource", "re");
  if (file == nullptr) return false;
  char name[16] = {};
  const bool read = std::fgets(name, sizeof name, file) != nullptr;
  std::fclose(file);
  return read && std::strcmp(name, "tsc\n") == 0;
#else
  return false;
#endif
}

}  // namespace

void prepare_platform() noexcept {
  static std::once_flag once;
  std::call_once(once, [] {
    detail::platform_facts.asymmetric_fence = register_membarrier();
    detail::platform_facts.synchronised_tsc = kernel_trusts_tsc();
    epoch = {SteadyClock::now(), SystemPlatform::now()};
  });
}

std::uint32_t this_thread_number() noexcept { return static_cast<std::uint32_t>(syscall(SYS_gettid)); }

double nanoseconds_per_stamp() noexcept {
  if (!stamps_are_time()) return 0.0;
  const auto elapsed = std::chrono::duration<double, std::nano>(SteadyClock::now() - epoch.time).count();
  const auto ticks = static_cast<double>(SystemPlatform::now() - epoch.stamp);
  return ticks > 0.0 ? elapsed / ticks : 0.0;
}

void detail::membarrier_all_threads() noexcept {
  // Without membarrier the light half is a full fence, and so must this be.
  if (!platform_facts.asymmetric_fence || membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) != 0) full_fence();
}

void detail::futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t expected) noexcept {
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, expected, nullptr, nullptr, 0);
}

void detail::futex_wait_until(const std::atomic<std::uint32_t>& word, std::uint32_t expected,
                              std::optional<std::chrono::steady_clock::time_point> deadline) noexcept {
  if (!deadline) return futex_wait(word, expected);
  const auto since_boot = deadline->time_since_epoch();  // libstdc++ and libc++: CLOCK_MONOTONIC
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(since_boot);
  const timespec until{.tv_sec = static_cast<time_t>(seconds.count()),
                       .tv_nsec = static_cast<long>(std::chrono::nanoseconds(since_boot - seconds).count())};
  syscall(SYS_futex, &word, FUTEX_WAIT_BITSET_PRIVATE, expected, &until, nullptr, FUTEX_BITSET_MATCH_ANY);
}

void detail::futex_wake(const std::atomic<std::uint32_t>& word, int threads) noexcept {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, threads, nullptr, nullptr, 0);
}

}  // namespace cox
