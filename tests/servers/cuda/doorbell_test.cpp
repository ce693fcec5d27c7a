#include <coxswain/tests/support/catch.hpp>

#include <coxswain/device_handle/base/call_error.hpp>
#include <coxswain/device_handle/base/shutdown.hpp>
#include <coxswain/device_handle/handle/device_handle.hpp>
#include <coxswain/device_handle/thread/device_thread_options.hpp>
#include <coxswain/servers/cuda/event/doorbell.hpp>

#include <chrono>
#include <future>
#include <latch>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

using namespace cox;
using cox::detail::Doorbell;
using namespace std::chrono_literals;

TEST_CASE("Calls are made in the order of their posts, those that calls post with them, and only once") {
  Doorbell doorbell({1, 0}, [] {});
  std::vector<int> made;
  CHECK_FALSE(doorbell.make_calls());
  doorbell.post([&] {
    made.push_back(1);
    doorbell.post([&] { made.push_back(3); });
  });
  {
    const Doorbell::Attending attending(doorbell);
    doorbell.post([&] { made.push_back(2); });
  }
  CHECK(made.empty());
  CHECK(doorbell.make_calls());
  CHECK(made == std::vector<int>{1, 2, 3});
  CHECK_FALSE(doorbell.make_calls());
  CHECK(made.size() == 3);
}

TEST_CASE("A call that throws takes no other with it") {
  Doorbell doorbell({1, 0}, [] {});
  int made = 0;
  doorbell.post([] { throw std::runtime_error("a call of the test"); });
  doorbell.post([&] { ++made; });
  CHECK(doorbell.make_calls());
  CHECK(made == 1);
}

TEST_CASE("The standing call is made once for all that asked for it, behind the calls that were posted") {
  Doorbell doorbell({1, 0}, [] {});
  std::vector<int> made;
  doorbell.set_standing([&] {
    made.push_back(0);
    if (made.size() == 2) doorbell.call_standing();
  });
  doorbell.call_standing();
  doorbell.post([&] { made.push_back(1); });
  doorbell.call_standing();
  CHECK(doorbell.make_calls());
  CHECK(made == std::vector<int>{1, 0, 0});
  CHECK_FALSE(doorbell.make_calls());
}

namespace {

/// Has a doorbell, as a server does, on a device thread whose queue holds few closures.
struct Ringed {
  explicit Ringed(DeviceId device) : doorbell(std::make_shared<Doorbell>(device, [this] { ++answers; })) {}
  std::shared_ptr<Doorbell> doorbell;
  int answers = 0;
};

}  // namespace

TEST_CASE("L3: the device thread answers a ring that finds its queue full, and every later one") {
  for (const QueuePolicy policy : {QueuePolicy::Fail, QueuePolicy::Block}) {
    const DeviceId device{77, 0};
    DeviceThreadOptions options;
    options.queue_policy = policy;
    options.queue_capacity = 4;
    set_device_thread_options(device, options);
    const auto handle = DeviceHandle<Ringed>::get(device);
    const std::shared_ptr<Doorbell> doorbell = handle.submit_blocking([](Ringed& ringed) { return ringed.doorbell; });
    const auto answers = [&] {
      for (;;) {
        try {
          return handle.submit_blocking([](Ringed& ringed) { return ringed.answers; });
        } catch (const CallError& error) {  // the queue is still full
          REQUIRE(error.kind() == CallError::Kind::QueueFull);
          std::this_thread::yield();
        }
      }
    };
    std::latch may_end(1);
    std::latch begun(1);
    handle.submit([&](Ringed&) {
      begun.count_down();
      may_end.wait();
    });
    begun.wait();
    try {
      for (;;) {
        CallOptions options_of_call;
        if (policy == QueuePolicy::Block) options_of_call.deadline = std::chrono::steady_clock::now() + 20ms;
        handle.submit([](Ringed&) {}, options_of_call);
      }
    } catch (const CallError& error) {  // it is full
      REQUIRE(error.kind() == (policy == QueuePolicy::Fail ? CallError::Kind::QueueFull : CallError::Kind::Expired));
    }
    auto ring = std::async(std::launch::async, [&] { doorbell->ring(); });
    CHECK(ring.wait_for(10s) == std::future_status::ready);
    may_end.count_down();
    ring.get();
    CHECK(answers() == 1);
    doorbell->ring();
    CHECK(answers() == 2);
    shutdown(device);
    set_device_thread_options(device, {});
  }
}
