#include <coxswain/collectives/link/child_processes.hpp>

#include <coxswain/device_handle/base/fork.hpp>

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <map>
#include <mutex>

namespace cox::detail::world {
namespace {

/// The sockets by descriptor. One that was closed may be listed, until its number is used again: so the inode, which no
/// two sockets have at the same time, is compared.
struct Sockets {
  std::mutex mutex;
  std::map<int, ino_t> inodes;
};

Sockets& sockets();

void before_fork() { sockets().mutex.lock(); }
void in_parent() { sockets().mutex.unlock(); }
// Only calls that are safe in the child of a process with threads. The numbers stay in use, so that whatever closes
// them in the child closes nothing else.
void in_child() {
  set_forked();
  const int nothing = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  for (const auto& [descriptor, inode] : sockets().inodes) {
    struct stat found{};
    if (::fstat(descriptor, &found) != 0 || !S_ISSOCK(found.st_mode) || found.st_ino != inode) continue;
    if (nothing < 0 || ::dup3(nothing, descriptor, O_CLOEXEC) < 0) ::close(descriptor);
  }
  if (nothing >= 0) ::close(nothing);
  sockets().mutex.unlock();
}

Sockets& sockets() {
  static auto& instance = *[] {
    pthread_atfork(before_fork, in_parent, in_child);
    return new Sockets;  // never destroyed: the process may fork at any time
  }();
  return instance;
}

}  // namespace

void keep_from_children(int descriptor) noexcept {
  static_cast<void>(::fcntl(descriptor, F_SETFD, FD_CLOEXEC));
  struct stat its{};
  if (::fstat(descriptor, &its) != 0) return;
  try {
    const std::lock_guard lock(sockets().mutex);
    sockets().inodes.insert_or_assign(descriptor, its.st_ino);
  } catch (...) {  // no memory: forked children get it
  }
}

}  // namespace cox::detail::world
