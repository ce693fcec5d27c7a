// expect-exit: 0
// fork() inside a task: the child is no device thread. Every call throws CallError forked there too.

#include <coxswain/device_handle/handle/device_handle.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

/// For the leak sanitizer: in a forked child it cannot see what the threads of the parent hold, and may wait for them.
extern "C" int __lsan_is_turned_off() { return 1; }

namespace {

template <int number>
struct Service {
  explicit Service(cox::DeviceId) {}
};

template <class F>
bool forked(F&& f) {
  try {
    f();
  } catch (const cox::CallError& error) {
    return error.kind() == cox::CallError::Kind::Forked;
  }
  return false;
}

}  // namespace

int main() {
  alarm(60);
  auto one = cox::DeviceHandle<Service<1>>::get({});
  auto two = cox::DeviceHandle<Service<2>>::get({});
  return one.submit_blocking([&](Service<1>&) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(20);
      int code = 0;
      if (!forked([&] { two.submit([](Service<2>&) {}); })) code = 1;
      if (!forked([&] { two.submit_blocking([](Service<2>&) {}); })) code = 2;
      if (!forked([&] { two.exclusive([] {}); })) code = 3;
      if (!forked([&] { cox::shutdown({}); })) code = 4;
      _exit(code);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
  });
}
