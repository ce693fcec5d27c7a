#include <coxswain/device_handle/thread/thread_setup.hpp>

#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>

namespace cox::detail {
namespace {

// Requests short time slices from the scheduler. The scheduler puts a woken thread on the processor of the client that
// woke it. If that client continues to compute, the woken thread would start at the next tick, milliseconds later, with
// the standard slice. Linux 6.12 and newer take the slice of a normal thread from sched_runtime; older kernels ignore
// it.
void ask_for_short_slices() noexcept {
  struct {
    std::uint32_t size;
    std::uint32_t policy;
    std::uint64_t flags;
    std::int32_t nice;
    std::uint32_t priority;
    std::uint64_t runtime;
    std::uint64_t deadline;
    std::uint64_t period;
  } attributes{};
  static_assert(sizeof attributes == 48);
  attributes.size = sizeof attributes;
  if (syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) != 0 || attributes.policy != SCHED_OTHER) return;
  attributes.size = sizeof attributes;
  attributes.runtime = 100'000;  // ns, the shortest that the kernel accepts
  syscall(SYS_sched_setattr, 0, &attributes, 0);
}

}  // namespace

void set_up_device_thread(DeviceId device, Stage stage, const std::vector<int>& cpus) noexcept {
  char name[24];
  std::snprintf(name, sizeof name, "cox-%c%u-%u", stage == Stage::Upstream ? 'u' : 'd', unsigned{device.type},
                unsigned{device.index});
  name[15] = '\0';  // the longest name that the system accepts
  pthread_setname_np(pthread_self(), name);
  if (!cpus.empty()) {
    cpu_set_t set;
    CPU_ZERO(&set);
    for (const int cpu : cpus) CPU_SET(static_cast<std::size_t>(cpu), &set);
    pthread_setaffinity_np(pthread_self(), sizeof set, &set);  // no effect if none of them exists
  }
  ask_for_short_slices();
}

}  // namespace cox::detail
