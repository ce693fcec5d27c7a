#pragma once

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>

namespace cox::test {

enum class RefusedThreads : bool { OfThisThread, OfProcess };

/// From now on every clone fails with EAGAIN, as at the limit of a container (pids.max), in the calling thread or in
/// all threads; for good. Returns false where the kernel has no seccomp.
[[nodiscard]] inline bool refuse_threads(RefusedThreads whose) {
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 1, 0), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EAGAIN), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  sock_fprog program{5, code};
  const unsigned flags = whose == RefusedThreads::OfProcess ? SECCOMP_FILTER_FLAG_TSYNC : 0U;
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program) == 0;
}

}  // namespace cox::test
