// expect-exit: 6
// A task calls std::exit while another device has work and clients wait: the process ends, with that code.

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
  for (int i = 0; i < 1000; ++i) other.submit([](Service&) {});
  handle.submit([](Service&) { std::exit(6); });
  handle.submit_blocking([](Service&) {});  // never answered: its device thread is ending the process
  pause();
}
