#include <coxswain/tests/support/catch.hpp>

#include <coxswain/runtime/async/device_event_set.hpp>
#include <coxswain/tests/runtime/fake_device_event.hpp>

#include <chrono>
#include <cstddef>
#include <memory>
#include <thread>
#include <vector>

using cox::DeviceEvent;
using cox::DeviceEventSet;
using cox::test::FakeDeviceEvent;

namespace {

struct Three {
  std::vector<std::shared_ptr<FakeDeviceEvent>> each{
      std::make_shared<FakeDeviceEvent>(), std::make_shared<FakeDeviceEvent>(), std::make_shared<FakeDeviceEvent>()};
  std::shared_ptr<DeviceEvent> all = DeviceEventSet::make(each);

  [[nodiscard]] bool reached_by(std::chrono::milliseconds time) const {
    return all->wait_until(std::chrono::steady_clock::now() + time);
  }
};

}  // namespace

TEST_CASE("A set of device events is reached when all of them are, in whatever order") {
  const auto last = GENERATE(std::size_t{0}, std::size_t{1}, std::size_t{2});
  const Three three;
  for (std::size_t i = 0; i < 3; ++i)
    if (i != last) three.each[i]->reach();
  CHECK_FALSE(three.all->reached());
  CHECK_FALSE(three.reached_by(std::chrono::milliseconds(1)));
  int told = 0;
  three.all->notify([&] { ++told; });
  CHECK(told == 0);
  std::thread waiting([&] {
    three.all->wait();
    CHECK(three.all->reached());
  });
  three.each[last]->reach();
  waiting.join();
  CHECK(told == 1);
  CHECK(three.reached_by(std::chrono::milliseconds(0)));
}

TEST_CASE("Who is to be told of a set is told once, when the last device event is reached") {
  const Three three;
  int told = 0;
  three.all->notify([&] { ++told; });
  for (const auto& device_event : three.each) {
    CHECK(told == 0);
    device_event->reach();
  }
  CHECK(told == 1);
}

TEST_CASE("Who asks a set that is reached is told at once") {
  const Three three;
  for (const auto& device_event : three.each) device_event->reach();
  int told = 0;
  three.all->notify([&] { ++told; });
  CHECK(told == 1);
}

TEST_CASE("One device event is its own set") {
  const auto one = std::make_shared<FakeDeviceEvent>();
  CHECK(DeviceEventSet::make(std::vector{one}) == one);
}
