// What a device thread does for a service between tasks: at the end of a batch, and while it is idle.

#include <coxswain/tests/device_handle/contract.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/device_handle/base/shutdown.hpp>
#include <coxswain/device_handle/handle/device_handle.hpp>
#include <coxswain/device_handle/handle/inline_device_handle.hpp>
#include <coxswain/device_handle/service/post_queue.hpp>
#include <coxswain/device_handle/service/thread_context.hpp>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <thread>

using namespace contract;

namespace {

/// Knows its thread.
struct Hooked {
  explicit Hooked(cox::ThreadContext& context) : thread(context) {}
  cox::ThreadContext& thread;
};

/// What happened, in its order; device thread, but for reading it afterwards.
struct Log final : cox::BatchHook {
  void end_batch() noexcept override {
    text += "|";
    ++ends;
  }
  std::string text;
  std::atomic<int> ends{0};
};

struct OfBatch {
  Log& log;
  void operator()(Hooked& service) const {
    log.text += "r";
    service.thread.at_batch_end(log);
  }
};
struct Other {
  Log& log;
  void operator()(Hooked&) const { log.text += "o"; }
};

/// Polls so often, then is done.
struct Polls final : cox::IdlePoll {
  explicit Polls(int count) : left(count) {}
  bool poll() noexcept override {
    ++polls;
    return --left > 0;
  }
  void end() noexcept override { ended.fetch_add(1); }

  int left;
  std::atomic<int> polls{0};
  std::atomic<int> ended{0};
};

}  // namespace

TEST_CASE("A batch ends before a task of another type runs") {
  const TestDevice device;
  auto handle = cox::DeviceHandle<Hooked>::get(device);
  Log log;
  {
    const Occupied occupied(handle);
    for (int i = 0; i < 3; ++i) handle.submit(OfBatch{log});
    handle.submit(Other{log});
    handle.submit(Other{log});
    handle.submit(OfBatch{log});
    handle.submit(Other{log});
  }
  handle.submit_blocking([](Hooked&) {});
  CHECK(log.text == "rrr|oor|o");
}

TEST_CASE("A batch ends when no more tasks come, and only once") {
  const TestDevice device;
  auto handle = cox::DeviceHandle<Hooked>::get(device);
  Log log;
  handle.submit(OfBatch{log});
  CHECK(eventually([&] { return log.ends == 1; }));  // with nothing behind it
  handle.submit(Other{log});
  handle.submit_blocking([](Hooked&) {});
  CHECK(log.text == "r|o");
}

TEST_CASE("A batch ends before its thread does, and before the services go") {
  Log log;
  {
    const TestDevice device;
    auto handle = cox::DeviceHandle<Hooked>::get(device);
    const Occupied occupied(handle);
    handle.submit(OfBatch{log});
  }
  CHECK(log.text == "r|");
}

TEST_CASE("An idle poll is called while no task comes, and ended when it is done") {
  cox::DeviceThreadOptions awake;
  awake.spin = 60s;  // that the thread goes to sleep would end the work, too, however little of it was done
  const TestDevice device(awake);
  auto handle = cox::DeviceHandle<Hooked>::get(device);
  Polls polls(5);
  handle.submit([&](Hooked& service) { service.thread.poll_while_idle(polls); });
  CHECK(eventually([&] { return polls.ended == 1; }));
  CHECK(polls.polls == 5);
  handle.submit_blocking([](Hooked&) {});
  CHECK(polls.ended == 1);
}

TEST_CASE("An idle poll is ended by the next task, by another poll, and when its thread goes to sleep") {
  const TestDevice device;
  auto handle = cox::DeviceHandle<Hooked>::get(device);
  Polls first(1'000'000'000);
  Polls second(1'000'000'000);
  handle.submit([&](Hooked& service) { service.thread.poll_while_idle(first); });
  CHECK(eventually([&] { return first.polls > 0; }));
  CHECK(handle.submit_blocking([&](Hooked&) { return first.ended.load(); }) == 1);  // before the task
  handle.submit([&](Hooked& service) {
    service.thread.poll_while_idle(first);
    service.thread.poll_while_idle(second);
  });
  CHECK(eventually([&] { return second.ended == 1; }));  // it sleeps
  CHECK(first.ended == 2);
  CHECK(second.polls > 0);
}

TEST_CASE("Nothing is left for the time between tasks inside exclusive, or on an inline device") {
  const TestDevice device;
  auto handle = cox::DeviceHandle<Hooked>::get(device);
  Log log;
  Polls polls(1);
  const auto none_of_it = [&](Hooked& service) {
    CHECK_FALSE(service.thread.can_defer());
    CHECK_FALSE(service.thread.at_batch_end(log));
    CHECK_FALSE(service.thread.poll_while_idle(polls));
  };
  handle.exclusive([&] { handle.submit_blocking(none_of_it); });
  CHECK(handle.submit_blocking([](Hooked& service) { return service.thread.can_defer(); }));
  const auto inline_handle = cox::InlineDeviceHandle<Hooked>::get(device);
  inline_handle.submit_blocking(none_of_it);
  inline_handle.submit_blocking([&](Hooked& service) { CHECK(service.thread.device() == handle.device_id()); });
  handle.submit_blocking([](Hooked&) {});
  CHECK(log.ends == 0);
  CHECK(polls.polls == 0);
}

TEST_CASE("A thread that waits inside exclusive answers what was posted to its services") {
  const TestDevice device;
  auto handle = cox::DeviceHandle<Hooked>::get(device);
  CHECK(cox::ThreadContext::current() == nullptr);
  const auto posts = std::make_shared<cox::PostQueue>(handle.device_id(), [] {});
  handle.submit_blocking([&](Hooked& service) {
    CHECK_FALSE(service.thread.has_posts());
    posts->attach(service.thread);
    CHECK(service.thread.has_posts());
  });
  int made = 0;
  handle.exclusive([&] {
    std::thread([&] { posts->post([&] { ++made; }); }).join();
    CHECK(made == 0);
    cox::ThreadContext::current()->dispatch_posts();
    CHECK(made == 1);
  });
  handle.submit_blocking([](Hooked&) {});
  CHECK(made == 1);
}

TEST_CASE("What is posted by what a thread answers inside exclusive is answered after it, however often") {
  const TestDevice device;
  auto handle = cox::DeviceHandle<Hooked>::get(device);
  int left = 100'000;
  int depth = 0;
  int deepest = 0;
  std::shared_ptr<cox::PostQueue> posts;
  posts = std::make_shared<cox::PostQueue>(handle.device_id(), [&] {
    deepest = std::max(deepest, ++depth);
    if (--left > 0) posts->notify();
    --depth;
  });
  handle.submit_blocking([&](Hooked& service) { posts->attach(service.thread); });
  handle.exclusive([&] {
    cox::ThreadContext::current()->dispatch_posts();
    CHECK(left == 0);
  });
  CHECK(deepest == 1);
  handle.submit_blocking([&](Hooked&) { posts->close(); });
}
