#include <coxswain/tools/cox/stress/monitor.hpp>

#include <coxswain/tests/support/catch.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <latch>
#include <thread>

using namespace cox::stress;

TEST_CASE("L3: a client that gets no answer is reported as stuck, with its operation and device") {
  Options options;
  options.devices = {{0, 0}, {0, 1}};
  options.clients = 2;
  options.duration = std::chrono::seconds(0);
  options.patience = std::chrono::seconds(0);
  Truth truth(options.devices, options.clients);
  Crew crew(options.clients);
  std::latch answer(1);
  std::latch waiting(1);
  crew.start([](std::uint32_t) {},
             [&](std::uint32_t client) {
               if (client == 0) return;
               crew.activity(client).operation = Operation::Blocking;
               crew.activity(client).device = 1;
               waiting.count_down();
               answer.wait();
             });
  waiting.wait();
  Monitor monitor(options, crew, truth, [] { return std::size_t{0}; });
  const std::atomic<bool> interrupted{false};
  const Monitor::End end = monitor.watch(interrupted, {});
  answer.count_down();
  crew.join();

  CHECK(end == Monitor::End::Stuck);
  REQUIRE(truth.violations().all().size() == 1);
  const Violation violation = truth.violations().all().front();
  CHECK(violation.law == Law::Promptness);
  CHECK(violation.client.has_value());
}

TEST_CASE("The monitor ends the run when the user interrupts it") {
  Options options;
  options.devices = {{0, 0}};
  options.clients = 1;
  Truth truth(options.devices, options.clients);
  Crew crew(options.clients);
  crew.start([](std::uint32_t) {},
             [&](std::uint32_t) {
               while (!crew.stopped()) std::this_thread::yield();
             });
  Monitor monitor(options, crew, truth, [] { return std::size_t{0}; });
  const std::atomic<bool> interrupted{true};
  CHECK(monitor.watch(interrupted, {}) == Monitor::End::Interrupted);
  crew.join();
}

TEST_CASE("The monitor ends the run at a violation") {
  Options options;
  options.devices = {{0, 0}};
  options.clients = 1;
  Truth truth(options.devices, options.clients);
  Crew crew(options.clients);
  crew.start([](std::uint32_t) {},
             [&](std::uint32_t) {
               truth.violated(Law::Order, {}, "a", "b");
               while (!crew.stopped()) std::this_thread::yield();
             });
  Monitor monitor(options, crew, truth, [] { return std::size_t{0}; });
  const std::atomic<bool> interrupted{false};
  CHECK(monitor.watch(interrupted, {}) == Monitor::End::Finished);
  crew.join();
}
