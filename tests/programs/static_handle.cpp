// expect-exit: 0
// Handles in static objects: opened before main, used by destructors after it, in any order of construction.

#include <coxswain/device_handle/handle/device_handle.hpp>

#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <optional>

namespace {

constinit std::atomic<int> runs{0};
constinit std::atomic<int> late_runs{0};

struct Service {
  explicit Service(cox::DeviceId) {}
};
using Handle = cox::DeviceHandle<Service>;

/// Leaves the exit code as it is only if all went well.
void check(bool condition, int code) {
  if (!condition) _exit(code);
}

/// Uses its handle while static objects are destroyed: the call runs or is refused, and nothing else.
struct Holder {
  explicit Holder(int number) : number_(number) {}
  Holder(const Holder&) = delete;
  Holder& operator=(const Holder&) = delete;
  ~Holder() {
    if (!handle) return;
    try {
      const int before = runs;
      handle->submit_blocking([](Service&) { ++runs; });
      check(runs == before + 1, 10 + number_);
    } catch (const cox::CallError& error) {
      check(error.kind() == cox::CallError::Kind::Closed, 20 + number_);
    }
    try {
      static_cast<void>(Handle::get({.type = 0, .index = 3}));
    } catch (const cox::CallError& error) {
      check(error.kind() == cox::CallError::Kind::Closed, 30 + number_);
    }
  }
  std::optional<Handle> handle;

 private:
  int number_;
};

Holder early(1);                                    // built before the library is used
const Handle opened_before_main = Handle::get({});  // uses it first
Holder late(2);                                     // built after

}  // namespace

int main() {
  alarm(60);
  early.handle = opened_before_main;
  late.handle = opened_before_main;
  static Holder in_main(3);
  in_main.handle = Handle::get({.type = 0, .index = 1});
  std::atexit([] {
    try {
      Handle::get({.type = 0, .index = 2}).submit([](Service&) { ++late_runs; });
    } catch (const cox::CallError& error) {
      check(error.kind() == cox::CallError::Kind::Closed, 40);
    }
  });
  Handle copy = opened_before_main;
  copy.submit_blocking([](Service&) { ++runs; });
  check(runs == 1, 2);
  return 0;
}
