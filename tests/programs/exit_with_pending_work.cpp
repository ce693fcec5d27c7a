// expect-exit: 5
// main returns with work queued: it is done before the process ends. What it proves is told by the exit code, set by an
// object that goes after the library has drained its devices.

#include <coxswain/device_handle/handle/device_handle.hpp>

#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <future>

namespace {

constexpr int tasks = 20'000;
constinit std::atomic<int> done{0};
constinit std::atomic<bool> service_gone{false};

/// Built before the library is used, hence destroyed after.
struct LastWord {
  ~LastWord() { _exit(done == tasks && service_gone ? 5 : 1); }
} last_word;

struct Service {
  explicit Service(cox::DeviceId) {}
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;
  ~Service() { service_gone = true; }
};

}  // namespace

int main() {
  alarm(60);
  auto handle = cox::DeviceHandle<Service>::get({});
  std::promise<void> gate;
  handle.submit([opened = gate.get_future()](Service&) { opened.wait(); });
  for (int i = 0; i < tasks; ++i) {
    if (i % 2 == 0) {
      handle.submit([](Service&) { ++done; });
    } else {
      handle.submit([big = std::array<char, 500>{}](Service&) { done += 1 + big[0]; });
    }
  }
  gate.set_value();
  return 0;
}
