#include <coxswain/device_handle/queue/platform.hpp>

#include <linux/futex.h>
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <mutex>
#include <optional>
#include <thread>

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

// Whether `file` names the time-stamp counter; std::nullopt if it cannot be read.
std::optional<bool> names_tsc(const char* file_name) noexcept {
  std::FILE* file = std::fopen(file_name, "re");
  if (file == nullptr) return std::nullopt;
  char name[16] = {};
  const bool read = std::fgets(name, sizeof name, file) != nullptr;
  std::fclose(file);
  if (!read) return std::nullopt;
  return std::strcmp(name, "tsc\n") == 0;
}

bool kernel_trusts_tsc() noexcept {
#if defined(__x86_64__)
  return names_tsc(detail::clock_source_file).value_or(false);
#else
  return false;
#endif
}

constexpr std::chrono::nanoseconds between_checks = std::chrono::minutes(1);
constinit std::atomic<std::int64_t> next_check{0};  // by SteadyClock; relaxed: only the rate of checks matters

std::int64_t steady_now() noexcept { return std::chrono::nanoseconds(SteadyClock::now().time_since_epoch()).count(); }

}  // namespace

void prepare_platform() noexcept {
  static std::once_flag once;
  std::call_once(once, [] {
    detail::asymmetric_fence.start(register_membarrier());
    const bool tsc = kernel_trusts_tsc();
    detail::stamp_clock.pushes_read_tsc.store(tsc, std::memory_order_relaxed);
    detail::stamp_clock.device_threads_read_tsc.store(tsc, std::memory_order_relaxed);
    next_check.store(steady_now() + between_checks.count(), std::memory_order_relaxed);
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

// L1 holds across the change. Let submit(a) return before submit(b) is called. If a was stamped by the counter, its
// thread had seen `pushes_read_tsc` cleared, hence b's thread sees it cleared too, and b's stamp is larger. A device
// thread that takes its T from the counter does so after the barrier. If it missed a, then a was published after the
// barrier, and b began after that. So b's thread found the flag cleared, and b's stamp is later than T.
void detail::distrust_clock() noexcept {
  if (!stamp_clock.device_threads_read_tsc.load(std::memory_order_acquire)) return;
  stamp_clock.pushes_read_tsc.store(false, std::memory_order_relaxed);
  asymmetric_fence.heavy();
  stamp_clock.device_threads_read_tsc.store(false, std::memory_order_release);  // pairs with now_fenced()
}

void detail::check_clock_source(const char* file) noexcept {
  if (!names_tsc(file).value_or(true)) distrust_clock();
}

void detail::check_clock_source_periodically() noexcept {
  if (!stamps_are_time()) return;
  const std::int64_t now = steady_now();
  std::int64_t due = next_check.load(std::memory_order_relaxed);
  if (now < due || !next_check.compare_exchange_strong(due, now + between_checks.count(), std::memory_order_relaxed))
    return;
  check_clock_source(clock_source_file);
}

bool detail::MembarrierMachine::fence_all_threads() noexcept {
  return membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) == 0;
}

// A store leaves a processor's store buffer within microseconds, and a thread that is descheduled leaves no store
// behind in that buffer. If the kernel refuses to sleep as well, sleep_until() polls the clock instead.
void detail::MembarrierMachine::drain_stores() noexcept {
  std::this_thread::sleep_until(SteadyClock::now() + std::chrono::milliseconds(10));
}

void detail::futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t expected) noexcept {
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, expected, nullptr, nullptr, 0);
}

void detail::futex_wait_until(const std::atomic<std::uint32_t>& word, std::uint32_t expected,
                              std::optional<std::chrono::steady_clock::time_point> deadline) noexcept {
  if (!deadline) return futex_wait(word, expected);
  const auto since_boot = deadline->time_since_epoch();  // CLOCK_MONOTONIC in libstdc++ and libc++
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(since_boot);
  const timespec until{.tv_sec = static_cast<time_t>(seconds.count()),
                       .tv_nsec = static_cast<long>(std::chrono::nanoseconds(since_boot - seconds).count())};
  syscall(SYS_futex, &word, FUTEX_WAIT_BITSET_PRIVATE, expected, &until, nullptr, FUTEX_BITSET_MATCH_ANY);
}

void detail::futex_wake(const std::atomic<std::uint32_t>& word, int threads) noexcept {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, threads, nullptr, nullptr, 0);
}

}  // namespace cox
