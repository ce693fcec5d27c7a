#include <coxswain/runtime/telemetry/prometheus_text.hpp>

#include <coxswain/tests/support/catch.hpp>

#include <stdexcept>
#include <string>

using Catch::Matchers::ContainsSubstring;
using cox::Histogram;
using cox::metrics::MetricSet;
using cox::metrics::prometheus_text;

TEST_CASE("A histogram of durations is shown in seconds, with buckets that add up") {
  Histogram durations(1.0);
  durations.record(500, 3);          // ns
  durations.record(2'000'000);       // 2 ms
  durations.record(20'000'000'000);  // 20 s
  MetricSet set;
  set.histogram("cox_wait_seconds", "Waits.", {{"device", "host:0"}}, durations);
  const std::string text = prometheus_text(set);
  const std::string bucket = "cox_wait_seconds_bucket{device=\"host:0\",le=";
  CHECK_THAT(text, ContainsSubstring("# HELP cox_wait_seconds Waits.\n# TYPE cox_wait_seconds histogram\n"));
  CHECK_THAT(text, ContainsSubstring(bucket + "\"1e-06\"} 3\n"));
  CHECK_THAT(text, ContainsSubstring(bucket + "\"0.001\"} 3\n"));
  CHECK_THAT(text, ContainsSubstring(bucket + "\"0.01\"} 4\n"));
  CHECK_THAT(text, ContainsSubstring(bucket + "\"10\"} 4\n"));
  CHECK_THAT(text, ContainsSubstring(bucket + "\"+Inf\"} 5\n"));
  CHECK_THAT(text, ContainsSubstring("cox_wait_seconds_count{device=\"host:0\"} 5\n"));
  CHECK_THAT(text, ContainsSubstring("cox_wait_seconds_sum{device=\"host:0\"} 20.00"));
}

TEST_CASE("Values of one metric stand together under one head") {
  MetricSet set;
  set.counter("cox_b_total", "B.", {{"device", "host:0"}}, 1);
  set.gauge("cox_a", "A.", {}, 0.5);
  set.counter("cox_b_total", "B.", {{"device", "host:1"}}, 2);
  CHECK(prometheus_text(set) ==
        "# HELP cox_a A.\n# TYPE cox_a gauge\ncox_a 0.5\n"
        "# HELP cox_b_total B.\n# TYPE cox_b_total counter\n"
        "cox_b_total{device=\"host:0\"} 1\ncox_b_total{device=\"host:1\"} 2\n");
}

TEST_CASE("A metric is of one kind") {
  MetricSet set;
  set.gauge("cox_a", "A.", {}, 1);
  CHECK_THROWS_AS(set.counter("cox_a", "A.", {}, 1), std::logic_error);
}
