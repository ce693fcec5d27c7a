// expect-exit: 4
// A task never returns: the process ends all the same, in bounded time, with the exit code that main returned.

#include <coxswain/device_handle/handle/device_handle.hpp>

#include <unistd.h>

#include <atomic>
#include <future>

namespace {
struct Service {
  explicit Service(cox::DeviceId) {}
};
}  // namespace

int main() {
  alarm(60);
  auto handle = cox::DeviceHandle<Service>::get({});
  std::promise<void> started;
  handle.submit([&](Service&) {
    started.set_value();
    for (;;) pause();
  });
  started.get_future().wait();
  for (int i = 0; i < 1000; ++i) handle.submit([](Service&) {});
  return 4;
}
