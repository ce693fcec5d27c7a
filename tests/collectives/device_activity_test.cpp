#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/collectives/watch/device_activity.hpp>
#include <coxswain/device_handle/base/shutdown.hpp>
#include <coxswain/device_handle/handle/device_handle.hpp>

#include <future>

using namespace cox;
using cox::test::mentions;

namespace {

constexpr DeviceId watched{.type = 0, .index = 53};

struct Idle {
  explicit Idle(DeviceId) {}
};

}  // namespace

TEST_CASE("What a device thread does is told with its task and what waits behind it") {
  CHECK(device_activity(watched) == "the device is not open");
  const auto handle = DeviceHandle<Idle>::get(watched);
  handle.submit_blocking([](Idle&) {});
  std::promise<void> entered;
  std::promise<void> open;
  handle.submit(
      [&](Idle&) {
        entered.set_value();
        open.get_future().wait();
      },
      CallOptions{.label = "step"});
  entered.get_future().wait();
  for (int i = 0; i < 3; ++i) handle.submit([](Idle&) {});
  CHECK(mentions(device_activity(watched), {"in task step", "device_activity_test.cpp", "3 queued"}));
  open.set_value();
  shutdown(watched);
}
