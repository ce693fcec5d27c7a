// L3: a process that installs a seccomp filter after it has opened its devices, so that membarrier is refused from then
// on, loses no wake-up.

#include <coxswain/tests/programs/single_submits.hpp>

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>

namespace {

bool refuse_membarrier() {
  sock_filter code[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 0, 1),
                        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  sock_fprog program{.len = 4, .filter = code};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0;
}

}  // namespace

int main() {
  cox::DeviceThreadOptions options;
  options.spin = std::chrono::nanoseconds(0);
  cox::set_default_device_thread_options(options);
  const auto handle = cox::DeviceHandle<cox::test::EmptyService>::get({.type = 0, .index = 0});
  const bool was_free = cox::detail::asymmetric_fence.light_is_free();
  if (!refuse_membarrier()) {
    std::puts("the kernel takes no seccomp filter here: nothing to test");
    return 0;
  }
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(15);
  const long submitted = cox::test::submit_singly(handle, deadline, 300'000);
  const bool is_free = cox::detail::asymmetric_fence.light_is_free();
  std::printf("%ld submits; the light half of the fence was free before: %d, after: %d\n", submitted, was_free,
              is_free);
  return submitted > 0 && !is_free ? 0 : 1;
}
