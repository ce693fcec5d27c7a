// expect-exit: 0
// thread_local objects that submit while their thread ends, whether they were built before or after the thread first
// submitted; and from atexit, when main's own thread_local objects are gone. Nothing is lost, also while other threads
// take over what the ending one has given back.

#include <coxswain/device_handle/handle/device_handle.hpp>

#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <optional>
#include <thread>
#include <vector>

namespace {

constinit std::atomic<int> runs{0};

struct Service {
  explicit Service(cox::DeviceId) {}
};
using Handle = cox::DeviceHandle<Service>;

constexpr int last_submits = 100'000;

std::atomic<int> ending{0};
std::atomic<int> taking_over{0};

struct Farewell {
  Farewell() = default;
  Farewell(const Farewell&) = delete;
  Farewell& operator=(const Farewell&) = delete;
  ~Farewell() {
    if (!handle) return;
    if (meet) {
      ++ending;
      while (taking_over < ending) std::this_thread::yield();
    }
    for (int i = 0; i < last_submits; ++i) handle->submit([](Service&) { ++runs; });
  }
  std::optional<Handle> handle;
  bool meet = false;
};

thread_local Farewell built_before;
thread_local Farewell built_after;

bool all_ran(Handle& handle, int expected) {
  handle.submit_blocking([](Service&) {});
  return runs == expected;
}

}  // namespace

int main() {
  alarm(100);
  Handle handle = Handle::get({});
  int expected = 0;

  std::thread([&] {
    built_before.handle = handle;
    handle.submit([](Service&) { ++runs; });
    built_after.handle = handle;
  }).join();
  expected += 1 + 2 * last_submits;
  if (!all_ran(handle, expected)) return 1;

  // As above, while a new thread submits: it may be given the lane that the ending thread has given back.
  for (int round = 0; round < 20; ++round) {
    std::thread leaving([&] {
      built_before.handle = handle;
      built_before.meet = true;
      handle.submit([](Service&) { ++runs; });
    });
    std::thread coming([&] {
      while (ending <= round) std::this_thread::yield();
      handle.submit([](Service&) { ++runs; });
      ++taking_over;
      for (int i = 0; i < last_submits; ++i) handle.submit([](Service&) { ++runs; });
    });
    leaving.join();
    coming.join();
    expected += 2 + 2 * last_submits;
    if (!all_ran(handle, expected)) return 2;
  }

  std::atexit([] {
    try {
      Handle::get({}).submit_blocking([](Service&) { ++runs; });
    } catch (const cox::CallError& error) {
      if (error.kind() != cox::CallError::Kind::Closed) _exit(3);
    }
  });
  built_before.handle = handle;
  return 0;
}
