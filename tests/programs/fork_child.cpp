// expect-exit: 0
// A forked child: every call throws CallError forked, nothing hangs, and it exits as it wishes. The parent goes on.

#include <coxswain/device_handle/handle/device_handle.hpp>
#include <coxswain/device_handle/handle/inline_device_handle.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <thread>
#include <vector>

/// For the leak sanitizer: in a forked child it cannot see what the threads of the parent hold, and may wait for them.
extern "C" int __lsan_is_turned_off() { return 1; }

namespace {

struct Service {
  explicit Service(cox::DeviceId) {}
};
struct Other {
  explicit Other(cox::DeviceId) {}
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

template <class HandleOf>
int first_failure(HandleOf handle, int base) {
  using Handle = HandleOf;
  const cox::DeviceId device = handle.device_id();
  const auto nothing = [](Service&) {};
  if (!forked([&] { handle.submit(nothing); })) return base + 1;
  if (!forked([&] { handle.submit(nothing, cox::CallOptions{}); })) return base + 2;
  if (!forked([&] { handle.submit_blocking(nothing); })) return base + 3;
  if (!forked([&] { handle.submit_blocking(nothing, cox::CallOptions{}); })) return base + 4;
  if (!forked([&] { handle.exclusive([] {}); })) return base + 5;
  if (!forked([&] { handle.submit_async(nothing, [](const std::exception_ptr&) {}); })) return base + 6;
  if (!forked([&] { static_cast<void>(Handle::get(device)); })) return base + 7;
  if (!forked([&] { static_cast<void>(Handle::get({.type = 0, .index = 9})); })) return base + 8;
  if (!forked([&] { cox::shutdown(device); })) return base + 9;
  if (!forked([&] { cox::shutdown_all(); })) return base + 10;
  handle.flush_queue();
  static_cast<void>(handle.statistics());
  return 0;
}

int status_of(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

int main() {
  alarm(60);
  auto handle = cox::DeviceHandle<Service>::get({});
  auto in_line = cox::InlineDeviceHandle<Service>::get({});
  std::atomic<bool> stop{false};
  std::vector<std::thread> clients;  // the device is busy, and a thread is in the inline device, whenever we fork
  for (int t = 0; t < 2; ++t) {
    clients.emplace_back([&, handle, in_line]() mutable {
      while (!stop) {
        handle.submit_blocking([](Service&) {});
        in_line.submit([](Service&) {});
      }
    });
  }
  int worst = 0;
  for (int round = 0; round < 20 && worst == 0; ++round) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(20);
      int code = first_failure(handle, 10);
      if (code == 0) code = first_failure(in_line, 40);
      std::exit(code == 0 ? 7 : code);  // through static destructors
    }
    const int status = status_of(child);
    if (status != 7) worst = status;
    handle.submit_blocking([](Service&) {});
  }
  stop = true;
  for (auto& client : clients) client.join();
  return worst;
}
