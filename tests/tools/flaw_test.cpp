#include <coxswain/tests/tools/flawed_client.hpp>
#include <coxswain/tests/tools/flawed_handle.hpp>
#include <coxswain/tests/tools/flaws.hpp>

#include <coxswain/collectives/communicator/communicators.hpp>
#include <coxswain/tools/cox/stress/engine.hpp>

#include <coxswain/tests/support/catch.hpp>

#include <atomic>
#include <chrono>
#include <functional>
#include <string>

// A check that finds nothing is worth nothing: each of these runs on a library with a planted flaw.

using namespace cox::stress;

namespace {

template <class Backend>
Report stressed(const std::string& mix, double throws = 0, const std::function<void(Options&)>& change = {}) {
  Options options;
  cox::set_host_device_count(2);
  options.devices = cox::HostServer::enumerate_devices(cox::host_device_type);
  options.operations = 100'000;
  options.clients = 3;
  options.seed = 42;
  options.mix = Mix::parse("--mix", mix);
  options.payload = Payload{.smallest = 64, .largest = 4096};
  options.faults.throws = throws;
  if (change) change(options);
  const std::atomic<bool> interrupted{false};
  return run<Backend>(options, interrupted, {});
}

const Violation& first(const Report& report) {
  REQUIRE_FALSE(report.ok());
  const Violation& violation = report.violations.front();
  CAPTURE(to_string(violation));
  CHECK(violation.client.has_value());
  CHECK(violation.device.has_value());
  CHECK(violation.stream.has_value());
  CHECK(violation.sequence.has_value());
  CHECK_FALSE(violation.expected.empty());
  CHECK_FALSE(violation.got.empty());
  CHECK(verdict(report).find("--seed 42") != std::string::npos);
  return violation;
}

}  // namespace

TEST_CASE("The library without a flaw passes") {
  const Report report = stressed<LibraryBackend>("submit=40,blocking=10,exclusive=2,create=5,read=5,launch=5", 0.01);
  CAPTURE(verdict(report));
  CHECK(report.ok());
}

TEST_CASE("L1: two closures that change places are found") {
  CHECK(first(stressed<FlawedBackend<SwappingFlaw>>("submit=50,blocking=1")).law == Law::Order);
}

TEST_CASE("L1: order that holds for each client but not between clients is found") {
  const Violation violation = first(stressed<FlawedBackend<BatchingFlaw>>("submit=50,blocking=1"));
  CHECK(violation.law == Law::Order);
  CHECK(violation.expected.find("its call had returned before this one began") != std::string::npos);
}

TEST_CASE("L2: a closure that is destroyed unrun is found") {
  const Report report = stressed<FlawedBackend<DroppingFlaw>>("submit=50,blocking=1");
  CHECK(first(report).law == Law::Conservation);
  CHECK(first(report).got == "it was destroyed without having run");
}

TEST_CASE("L2: a closure that neither runs nor is destroyed is found by what comes after it") {
  CHECK(first(stressed<FlawedBackend<KeepingFlaw>>("submit=50,blocking=1")).law == Law::Order);
}

TEST_CASE("L2: a closure that runs twice is found") {
  const Report report = stressed<FlawedBackend<RepeatingFlaw>>("submit=50,blocking=1");
  CHECK(first(report).law == Law::Conservation);
  CHECK(first(report).got == "it ran 2 times");
}

TEST_CASE("L5: an exception that does not come to the error sink is found") {
  CHECK(first(stressed<FlawedBackend<SwallowingFlaw>>("submit=50,blocking=1", 0.01)).law == Law::Isolation);
}

TEST_CASE("L9: a closure under a wrong StreamId is found") {
  CHECK(first(stressed<FlawedBackend<StreamlessFlaw>>("submit=50,blocking=1")).law == Law::Identity);
}

TEST_CASE("A wrong byte of a read is found") {
  CHECK(first(stressed<FlawedComputeBackend<CorruptingClient>>("create=1,read=5")).law == Law::Data);
}

TEST_CASE("A kernel that did not run is found") {
  CHECK(first(stressed<FlawedComputeBackend<ForgetfulClient>>("create=1,read=5,launch=5")).law == Law::Data);
}

TEST_CASE("A wrong element in one rank's result of a collective is found") {
  const Violation violation = first(stressed<FlawedComputeBackend<SpoilingClient>>("all_reduce=5,broadcast=1"));
  CHECK(violation.law == Law::Data);
  CHECK(violation.expected.find("all_reduce") != std::string::npos);
}

TEST_CASE("Two collectives that change places on one device are found") {
  const Violation violation = first(stressed<FlawedComputeBackend<ReorderingClient>>("all_reduce=1"));
  CHECK((violation.law == Law::Errors || violation.law == Law::Data));  // whether they ask for the same or not
}

TEST_CASE("L10: a collective that hangs is found, and the flight recorders are still there then") {
  std::string recorders;
  const Report report = stressed<FlawedComputeBackend<HangingClient>>("all_reduce=1", 0, [&](Options& options) {
    options.operations = 2000;
    options.patience = std::chrono::seconds(6);
    options.on_violation = [&] {
      recorders = cox::dump_flight_recorders();
      HangingClient::let_go();
    };
  });
  CHECK_FALSE(report.abandoned);
  REQUIRE_FALSE(report.ok());
  const Violation& violation = report.violations.front();
  CHECK(violation.law == Law::Deadlock);
  CHECK(violation.expected.find("all_reduce of {host:") == 0);
  CHECK(violation.got.find("hang") == 0);
  CHECK(recorders.find("all_reduce") != std::string::npos);
}
