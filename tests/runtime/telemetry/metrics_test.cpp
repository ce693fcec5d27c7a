#include <coxswain/runtime/telemetry/metrics.hpp>

#include <coxswain/tests/support/catch.hpp>

#include <coxswain/device_handle/base/shutdown.hpp>
#include <coxswain/device_handle/handle/device_handle.hpp>

#include <chrono>
#include <optional>
#include <stdexcept>
#include <string>

namespace metrics = cox::metrics;
using Catch::Matchers::ContainsSubstring;

namespace {

struct Measured {
  explicit Measured(cox::DeviceId) {}
  void on_task_error(const std::exception_ptr&, cox::StreamId) noexcept {}
};

const std::string labels = "{device=\"host:79\",stage=\"Downstream\"";

}  // namespace

TEST_CASE("The metrics show each open device thread's figures, and no longer once it is shut down") {
  const cox::DeviceId device{.type = 0, .index = 79};
  auto handle = cox::DeviceHandle<Measured>::get(device);
  handle.submit([](Measured&) { throw std::runtime_error("wanted"); });
  for (int i = 0; i < 4; ++i) handle.submit_blocking([](Measured&) {});
  // The caller is answered before its task is accounted for: the next task runs after that.
  const std::string text = handle.submit_blocking([](Measured&) { return metrics::text(); });

  CHECK_THAT(text, ContainsSubstring("# TYPE cox_tasks_accepted_total counter\n"));
  CHECK_THAT(text, ContainsSubstring("cox_tasks_accepted_total" + labels + "} 7\n"));
  CHECK_THAT(text, ContainsSubstring("cox_tasks_ended_total" + labels + ",outcome=\"completed\"} 5\n"));
  CHECK_THAT(text, ContainsSubstring("cox_tasks_ended_total" + labels + ",outcome=\"failed\"} 1\n"));
  CHECK_THAT(text, ContainsSubstring("cox_tasks_queued" + labels + "} 1\n"));  // the one that asks
  CHECK_THAT(text, ContainsSubstring("cox_device_thread_parks_total" + labels + "} "));
  CHECK_THAT(text, ContainsSubstring("cox_queue_bytes" + labels + "} "));
  CHECK_THAT(text, ContainsSubstring("cox_task_run_seconds_bucket" + labels + ",le=\"+Inf\"} "));

  cox::shutdown(device);
  CHECK_THAT(metrics::text(), !ContainsSubstring("host:79"));
}

TEST_CASE("A collector is asked as long as its registration lives") {
  std::optional<metrics::Registration> registration = metrics::register_collector(
      [](metrics::MetricSet& set) { set.gauge("cox_test_bytes", "Of the test.", {{"device", "host:\"0\""}}, 4096); });
  CHECK_THAT(metrics::text(), ContainsSubstring("cox_test_bytes{device=\"host:\\\"0\\\"\"} 4096\n"));
  auto moved = std::move(*registration);
  registration.reset();
  CHECK_THAT(metrics::text(), ContainsSubstring("cox_test_bytes"));
  moved = metrics::Registration();
  CHECK_THAT(metrics::text(), !ContainsSubstring("cox_test_bytes"));
}

TEST_CASE("A collector that throws is left out and counted, and the others are heard") {
  const auto failed = [] { return metrics::collect().families().at("cox_metrics_collector_failures_total").values; };
  const double before = failed()[0].number;
  const auto broken = metrics::register_collector([](metrics::MetricSet& set) {
    set.gauge("cox_half_done", "Never shown.", {}, 1);
    throw std::runtime_error("wanted");
  });
  const auto careless = metrics::register_collector([](metrics::MetricSet&) { throw 1; });  // no std::exception
  const auto mistaken =
      metrics::register_collector([](metrics::MetricSet& set) { set.counter("cox_tasks_queued", "A gauge.", {}, 1); });
  const auto sound =
      metrics::register_collector([](metrics::MetricSet& set) { set.gauge("cox_sound", "Shown.", {}, 1); });
  auto handle = cox::DeviceHandle<Measured>::get({.type = 0, .index = 79});
  const std::string text = metrics::text();
  CHECK_THAT(text, ContainsSubstring("cox_sound 1\n") && !ContainsSubstring("cox_half_done"));
  CHECK(failed()[0].number == before + 6);  // three in each of two collections
  cox::shutdown(handle.device_id());
}
