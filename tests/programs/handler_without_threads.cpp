// L2: a completion handler that has no executor is called although the system has no threads left by then.

#include <coxswain/servers/host/host_server.hpp>

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <future>

namespace {

// From now on every clone fails with EAGAIN, as at the limit of a container (pids.max).
bool refuse_threads() {
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 1, 0), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EAGAIN), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  sock_fprog program{5, code};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0;
}

}  // namespace

#ifdef __SANITIZE_ADDRESS__
// LeakSanitizer would start a thread at exit.
extern "C" int __lsan_is_turned_off() { return 1; }
#endif

int main() {
  alarm(60);
  const auto client = cox::HostClient::load({.type = cox::host_device_type, .index = 0});
  client.sync().get();
  if (!refuse_threads()) {
    std::puts("seccomp is not there: nothing to refuse threads with");
    return 0;
  }
  std::promise<void> release;
  client.device_handle().submit([released = release.get_future().share()](cox::HostServer&) { released.wait(); });
  std::promise<bool> called;
  client.sync([&](const std::exception_ptr& error) { called.set_value(error == nullptr); });
  release.set_value();
  if (!called.get_future().get()) return 1;
  client.sync().get();
  return 0;
}
