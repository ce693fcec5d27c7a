// expect-exit: 6
// A task calls std::exit while another device's task waits for it: no deadlock, no abort, that exit code.

#include <coxswain/device_handle/handle/device_handle.hpp>

#include <unistd.h>

#include <cstdlib>

namespace {
struct Service {
  explicit Service(cox::DeviceId) {}
};
}  // namespace

int main() {
  alarm(60);
  auto handle = cox::DeviceHandle<Service>::get({.type = 0, .index = 0});
  auto other = cox::DeviceHandle<Service>::get({.type = 0, .index = 1});
  other.submit([handle](Service&) mutable { handle.submit_blocking([](Service&) { std::exit(6); }); });
  pause();
}
