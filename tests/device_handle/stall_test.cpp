// The stall detector: a task that holds its thread too long is reported once, with its name and what waits behind it.

#include <coxswain/tests/device_handle/contract.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/device_handle/thread/stall.hpp>

using namespace contract;

namespace {

class Reports {
 public:
  Reports() {
    cox::set_stall_callback([state = state_](const cox::StallReport& stall) {
      const std::scoped_lock lock(state->mutex);
      state->stalls.push_back(stall);
    });
  }
  ~Reports() { cox::set_stall_callback({}); }
  Reports(const Reports&) = delete;
  Reports& operator=(const Reports&) = delete;
  [[nodiscard]] std::vector<cox::StallReport> of(cox::DeviceId device) const {
    const std::scoped_lock lock(state_->mutex);
    std::vector<cox::StallReport> found;
    for (const auto& stall : state_->stalls) {
      if (stall.device == device) found.push_back(stall);
    }
    return found;
  }

 private:
  struct State {
    std::mutex mutex;
    std::vector<cox::StallReport> stalls;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

cox::DeviceThreadOptions reporting_after(std::chrono::milliseconds threshold) {
  cox::DeviceThreadOptions options;
  options.stall_threshold = threshold;
  return options;
}

}  // namespace

TEST_CASE("A stalled task is reported once, with label, call site and what waits behind it, and counted", "[stall]") {
  const Reports reports;
  const TestDevice device(reporting_after(30ms));
  auto handle = cox::DeviceHandle<Alpha>::get(device);
  Gate gate;
  Gate started;
  const auto line = std::source_location::current().line() + 1;
  const cox::CallOptions options{std::nullopt, {}, "load the weights"};
  handle.submit(
      [gate, started](Alpha&) {
        started.open();
        gate.wait();
      },
      options);
  started.wait();
  for (int i = 0; i < 5; ++i) handle.submit([](Alpha&) {});
  const bool reported = eventually([&] { return !reports.of(device).empty(); }, 5s);
  const bool twice = eventually([&] { return reports.of(device).size() > 1; }, 150ms);
  gate.open();
  REQUIRE(reported);
  CHECK_FALSE(twice);
  const cox::StallReport stall = reports.of(device).front();
  CHECK_THAT(stall.task, Catch::Matchers::ContainsSubstring("load the weights") &&
                             Catch::Matchers::ContainsSubstring("stall_test.cpp") &&
                             Catch::Matchers::ContainsSubstring(":" + std::to_string(line)));
  CHECK(stall.held >= 30ms);
  CHECK(stall.waiting == 5);
  CHECK_THAT(stall.to_string(), Catch::Matchers::ContainsSubstring(device.id().to_string()) &&
                                    Catch::Matchers::ContainsSubstring("5") &&
                                    !Catch::Matchers::ContainsSubstring("\n"));
  CHECK(at_rest(handle).stalls == 1);
}

TEST_CASE("Two stalled tasks are two reports; a task without a label is named by its type", "[stall]") {
  const Reports reports;
  const TestDevice device(reporting_after(20ms));
  auto handle = cox::DeviceHandle<Alpha>::get(device);
  for (std::size_t round = 1; round <= 2; ++round) {
    const Occupied occupied(handle);
    REQUIRE(eventually([&] { return reports.of(device).size() == round; }, 5s));
  }
  CHECK_FALSE(reports.of(device)[0].task.empty());
  CHECK(handle.statistics().stalls == 2);
}

TEST_CASE("A device with a short threshold is looked at in time, although another has a long one", "[stall]") {
  const Reports reports;
  const TestDevice patient(reporting_after(10s));
  const TestDevice hasty(reporting_after(20ms));
  static_cast<void>(cox::DeviceHandle<Alpha>::get(patient));
  auto handle = cox::DeviceHandle<Alpha>::get(hasty);
  const Occupied occupied(handle);
  CHECK(eventually([&] { return !reports.of(hasty).empty(); }, 1s));
}

TEST_CASE("Many short tasks are no stall", "[stall]") {
  const Reports reports;
  const TestDevice device(reporting_after(50ms));
  auto handle = cox::DeviceHandle<Alpha>::get(device);
  const auto end = std::chrono::steady_clock::now() + 150ms;
  while (std::chrono::steady_clock::now() < end) handle.submit_blocking([](Alpha&) {});
  CHECK(reports.of(device).empty());
}

TEST_CASE("L13: a stall callback may shut the device down", "[stall]") {
  const TestDevice device(reporting_after(20ms));
  auto handle = cox::DeviceHandle<Alpha>::get(device);
  Gate done;
  std::atomic<cox::ShutdownOutcome> outcome{};
  cox::set_stall_callback([&, done](const cox::StallReport& stall) {
    if (stall.device != device.id()) return;
    outcome = cox::shutdown(stall.device, 0ms);
    done.open();
  });
  Gate started;
  Gate go_on;
  handle.submit([started, go_on](Alpha&) {
    started.open();
    go_on.wait();
  });
  started.wait();
  const bool shut = done.opens_within(never);
  go_on.open();
  cox::set_stall_callback({});
  REQUIRE(shut);
  CHECK(outcome == cox::ShutdownOutcome::Abandoned);
  CHECK(kind_of([&] { handle.submit([](Alpha&) {}); }) == Kind::Closed);
  // The detector serves the devices that are opened later.
  const Reports reports;
  const TestDevice next(reporting_after(20ms));
  auto later = cox::DeviceHandle<Alpha>::get(next);
  const Occupied occupied(later);
  CHECK(eventually([&] { return !reports.of(next).empty(); }, 5s));
}
