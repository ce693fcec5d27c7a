// What a device thread does for a service between tasks: at the end of a row, and while it is idle.

#include <coxswain/tests/device_handle/contract.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/device_handle/base/idle_work.hpp>
#include <coxswain/device_handle/base/shutdown.hpp>
#include <coxswain/device_handle/thread/device_thread.hpp>

#include <atomic>
#include <string>
#include <thread>

using namespace contract;

namespace {

/// What happened, in its order; device thread, but for reading it afterwards.
struct Log {
  std::string text;
  std::atomic<int> ends{0};

  /// To be called inside a task.
  void expect_end() {
    cox::DeviceThread::current()->at_end_of_row(
        [](void* log) noexcept {
          static_cast<Log*>(log)->text += "|";
          ++static_cast<Log*>(log)->ends;
        },
        this);
  }
};

struct OfRow {
  Log& log;
  void operator()(Alpha&) const {
    log.text += "r";
    log.expect_end();
  }
};
struct Other {
  Log& log;
  void operator()(Alpha&) const { log.text += "o"; }
};

/// Looks so often, then is done.
struct Looks final : cox::IdleWork {
  explicit Looks(int count) : left(count) {}
  bool look() noexcept override {
    ++looks;
    return --left > 0;
  }
  void end() noexcept override { ended.fetch_add(1); }

  int left;
  std::atomic<int> looks{0};
  std::atomic<int> ended{0};
};

}  // namespace

TEST_CASE("A row ends before a task of another type runs") {
  const TestDevice device;
  auto handle = cox::DeviceHandle<Alpha>::get(device);
  Log log;
  {
    const Occupied occupied(handle);
    for (int i = 0; i < 3; ++i) handle.submit(OfRow{log});
    handle.submit(Other{log});
    handle.submit(Other{log});
    handle.submit(OfRow{log});
    handle.submit(Other{log});
  }
  handle.submit_blocking([](Alpha&) {});
  CHECK(log.text == "rrr|oor|o");
}

TEST_CASE("A row ends when no more tasks come, and only once") {
  const TestDevice device;
  auto handle = cox::DeviceHandle<Alpha>::get(device);
  Log log;
  handle.submit(OfRow{log});
  CHECK(eventually([&] { return log.ends == 1; }));  // with nothing behind it
  handle.submit(Other{log});
  handle.submit_blocking([](Alpha&) {});
  CHECK(log.text == "r|o");
}

TEST_CASE("A row ends before its thread does, and before the services go") {
  Log log;
  {
    const TestDevice device;
    auto handle = cox::DeviceHandle<Alpha>::get(device);
    const Occupied occupied(handle);
    handle.submit(OfRow{log});
  }
  CHECK(log.text == "r|");
}

TEST_CASE("Idle work is done while no task comes, and ended when it is done") {
  cox::DeviceThreadOptions awake;
  awake.spin = 60s;  // that the thread goes to sleep would end the work, too, however little of it was done
  const TestDevice device(awake);
  auto handle = cox::DeviceHandle<Alpha>::get(device);
  Looks looks(5);
  handle.submit([&](Alpha&) { cox::DeviceThread::current()->while_idle(looks); });
  CHECK(eventually([&] { return looks.ended == 1; }));
  CHECK(looks.looks == 5);
  handle.submit_blocking([](Alpha&) {});
  CHECK(looks.ended == 1);
}

TEST_CASE("Idle work is ended by the next task, by other idle work, and when its thread goes to sleep") {
  const TestDevice device;
  auto handle = cox::DeviceHandle<Alpha>::get(device);
  Looks first(1'000'000'000);
  Looks second(1'000'000'000);
  handle.submit([&](Alpha&) { cox::DeviceThread::current()->while_idle(first); });
  CHECK(eventually([&] { return first.looks > 0; }));
  CHECK(handle.submit_blocking([&](Alpha&) { return first.ended.load(); }) == 1);  // before the task
  handle.submit([&](Alpha&) {
    cox::DeviceThread::current()->while_idle(first);
    cox::DeviceThread::current()->while_idle(second);
  });
  CHECK(eventually([&] { return second.ended == 1; }));  // it sleeps
  CHECK(first.ended == 2);
  CHECK(second.looks > 0);
}
