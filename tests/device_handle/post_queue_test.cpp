#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tests/support/failing_allocation.hpp>

#include <coxswain/device_handle/base/call_error.hpp>
#include <coxswain/device_handle/base/shutdown.hpp>
#include <coxswain/device_handle/base/task_error.hpp>
#include <coxswain/device_handle/handle/device_handle.hpp>
#include <coxswain/device_handle/handle/inline_device_handle.hpp>
#include <coxswain/device_handle/service/device_thread_options.hpp>
#include <coxswain/device_handle/service/post_queue.hpp>
#include <coxswain/device_handle/service/thread_context.hpp>

#include <atomic>
#include <chrono>
#include <future>
#include <latch>
#include <memory>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

using namespace cox;
using namespace std::chrono_literals;

TEST_CASE("Calls are made in the order of their posts, those that calls post with them, and only once") {
  const auto posts = std::make_shared<PostQueue>(DeviceId{1, 0}, [] {});
  std::vector<int> made;
  CHECK_FALSE(posts->run_calls());
  posts->post([&] {
    made.push_back(1);
    posts->post([&] { made.push_back(3); });
  });
  {
    const PostQueue::HoldNotify hold(*posts);
    posts->post([&] { made.push_back(2); });
  }
  CHECK(made.empty());
  CHECK(posts->run_calls());
  CHECK(made == std::vector<int>{1, 2, 3});
  CHECK_FALSE(posts->run_calls());
  CHECK(made.size() == 3);
}

TEST_CASE("After the end of the service no posted call or object is run or kept, though it owns the queue") {
  struct Object final : PostQueue::Posted {
    explicit Object(std::shared_ptr<PostQueue> of) : posts(std::move(of)) {}
    void run_posted() noexcept override { ++runs; }
    const std::shared_ptr<PostQueue> posts;
    int runs = 0;
  };
  auto posts = std::make_shared<PostQueue>(DeviceId{1, 0}, [] {});
  std::vector<std::weak_ptr<Object>> objects;
  const auto post_object = [&] {
    const auto object = std::make_shared<Object>(posts);
    objects.push_back(object);
    posts->post(object);
    posts->post([object] { ++object->runs; });
  };
  posts->close();
  post_object();
  post_object();
  CHECK_FALSE(objects.front().expired());
  posts->end();
  post_object();
  for (const auto& object : objects) CHECK(object.expired());
  const std::weak_ptr<PostQueue> queue = posts;
  posts.reset();
  CHECK(queue.expired());
}

TEST_CASE("Posted objects run in their order, without memory, and may be posted again while they run") {
  struct Object final : PostQueue::Posted {
    Object(std::vector<int>& all, int own) : made(all), number(own) {}
    void run_posted() noexcept override {
      made.push_back(number);
      if (again != nullptr) posts->post(std::exchange(again, nullptr));
    }
    std::vector<int>& made;
    const int number;
    PostQueue* posts = nullptr;
    std::shared_ptr<Object> again;
  };
  const auto posts = std::make_shared<PostQueue>(DeviceId{1, 0}, [] {});
  std::vector<int> made;
  made.reserve(8);
  const auto first = std::make_shared<Object>(made, 1);
  const auto second = std::make_shared<Object>(made, 2);
  first->posts = posts.get();
  first->again = first;
  cox::test::allocations_until_failure = 0;
  posts->post(first);
  posts->post(second);
  const bool ran = posts->run_calls();
  const int left = std::exchange(cox::test::allocations_until_failure, -1);
  CHECK(left == 0);  // nothing was allocated
  CHECK(ran);
  CHECK(made == std::vector<int>{1, 2, 1});
  CHECK_FALSE(posts->run_calls());
  CHECK(first.use_count() == 1);
  CHECK(second.use_count() == 1);
}

TEST_CASE("A call that throws takes no other with it") {
  const auto posts = std::make_shared<PostQueue>(DeviceId{1, 0}, [] {});
  int made = 0;
  posts->post([] { throw std::runtime_error("a call of the test"); });
  posts->post([&] { ++made; });
  CHECK(posts->run_calls());
  CHECK(made == 1);
}

TEST_CASE("The coalesced call is made once for all that asked for it, behind the calls that were posted") {
  const auto posts = std::make_shared<PostQueue>(DeviceId{1, 0}, [] {});
  std::vector<int> made;
  posts->set_coalesced([&] {
    made.push_back(0);
    if (made.size() == 2) posts->post_coalesced();
  });
  posts->post_coalesced();
  posts->post([&] { made.push_back(1); });
  posts->post_coalesced();
  CHECK(posts->run_calls());
  CHECK(made == std::vector<int>{1, 0, 0});
  CHECK_FALSE(posts->run_calls());
}

namespace {

/// Has a PostQueue, as a server does, on a device thread whose queue holds few closures.
struct Notified {
  explicit Notified(ThreadContext& thread)
      : posts(std::make_shared<PostQueue>(thread.device(), [this] { ++notifications; })) {
    posts->attach(thread);
  }
  std::shared_ptr<PostQueue> posts;
  int notifications = 0;
};

}  // namespace

TEST_CASE("L3: the device thread answers a notification that finds its queue full, and every later one") {
  for (const QueuePolicy policy : {QueuePolicy::Fail, QueuePolicy::Block}) {
    const DeviceId device{77, 0};
    DeviceThreadOptions options;
    options.queue_policy = policy;
    options.queue_capacity = 4;
    set_device_thread_options(device, options);
    const auto handle = DeviceHandle<Notified>::get(device);
    const std::shared_ptr<PostQueue> posts = handle.submit_blocking([](Notified& notified) { return notified.posts; });
    const auto answers = [&] {
      for (;;) {
        try {
          return handle.submit_blocking([](Notified& notified) { return notified.notifications; });
        } catch (const CallError& error) {  // the queue is still full
          REQUIRE(error.kind() == CallError::Kind::QueueFull);
          std::this_thread::yield();
        }
      }
    };
    std::latch may_end(1);
    std::latch begun(1);
    handle.submit([&](Notified&) {
      begun.count_down();
      may_end.wait();
    });
    begun.wait();
    try {
      for (;;) {
        CallOptions options_of_call;
        if (policy == QueuePolicy::Block) options_of_call.deadline = std::chrono::steady_clock::now() + 20ms;
        handle.submit([](Notified&) {}, options_of_call);
      }
    } catch (const CallError& error) {  // it is full
      REQUIRE(error.kind() == (policy == QueuePolicy::Fail ? CallError::Kind::QueueFull : CallError::Kind::Expired));
    }
    auto notifying = std::async(std::launch::async, [&] { posts->notify(); });
    CHECK(notifying.wait_for(10s) == std::future_status::ready);
    may_end.count_down();
    notifying.get();
    CHECK(answers() == 1);
    posts->notify();
    CHECK(answers() == 2);
    shutdown(device);
    set_device_thread_options(device, {});
  }
}

TEST_CASE(
    "Before it has its thread a PostQueue is not answered; what was posted by then is, at the next notification") {
  const DeviceId device{77, 0};
  const auto posts = std::make_shared<PostQueue>(device, [] {});
  std::atomic<int> made{0};
  posts->post([&] { ++made; });
  posts->notify();
  CHECK(made == 0);
  struct Attached {
    std::shared_ptr<PostQueue> posts;
    void attach(ThreadContext& thread) { posts->attach(thread); }  // insert() calls it
  };
  const auto handle = DeviceHandle<Attached>::insert(device, Attached{posts});
  CHECK(made == 0);
  posts->notify();
  handle.submit_blocking([](Attached&) {});
  CHECK(made == 1);
  shutdown(device);
}

TEST_CASE("What a notification throws is a TaskError of the device, and the next is answered") {
  const DeviceId device{77, 0};
  std::atomic<int> errors{0};
  set_task_error_callback([&](const TaskError& error) { errors += error.device == device ? 1 : 0; });
  struct Failing {
    explicit Failing(ThreadContext& thread)
        : posts(std::make_shared<PostQueue>(thread.device(), [] { throw std::runtime_error("of the test"); })) {
      posts->attach(thread);
    }
    std::shared_ptr<PostQueue> posts;
  };
  const auto handle = DeviceHandle<Failing>::get(device);
  const auto posts = handle.submit_blocking([](Failing& failing) { return failing.posts; });
  for (int i = 1; i <= 2; ++i) {
    posts->notify();
    handle.submit_blocking([](Failing&) {});
    CHECK(errors == i);
  }
  shutdown(device);
  set_task_error_callback({});
}

TEST_CASE("A PostQueue may be notified after its device was shut down") {
  const DeviceId device{77, 0};
  const auto handle = DeviceHandle<Notified>::get(device);
  const auto posts = handle.submit_blocking([](Notified& notified) { return notified.posts; });
  handle.submit_blocking([](Notified& notified) { notified.posts->close(); });
  shutdown(device);
  posts->notify();
  posts->post([] { FAIL("nobody is there"); });
}

TEST_CASE("On an inline device the thread that posts makes the calls") {
  const DeviceId device{77, 0};
  const auto handle = InlineDeviceHandle<Notified>::get(device);
  const auto posts = handle.submit_blocking([](Notified& notified) { return notified.posts; });
  std::thread::id made_on;
  posts->post([&] { made_on = std::this_thread::get_id(); });
  CHECK(made_on == std::this_thread::get_id());
  CHECK(handle.submit_blocking([](Notified& notified) { return notified.notifications; }) == 1);
  shutdown(device);
}

TEST_CASE("Inside exclusive a notification is answered at once, or right after the task that runs inline") {
  const DeviceId device{77, 0};
  const auto handle = DeviceHandle<Notified>::get(device);
  const auto posts = handle.submit_blocking([](Notified& notified) { return notified.posts; });
  std::vector<int> made;
  handle.exclusive([&] {
    posts->post([&] { made.push_back(1); });
    made.push_back(2);
    handle.submit([&](Notified&) {
      posts->post([&] { made.push_back(4); });
      made.push_back(3);
    });
    made.push_back(5);
  });
  CHECK(made == std::vector<int>{1, 2, 3, 4, 5});
  shutdown(device);
}
