#include <coxswain/tests/support/catch.hpp>

#include <coxswain/runtime/telemetry/metric_set.hpp>
#include <coxswain/runtime/telemetry/prometheus_text.hpp>
#include <coxswain/runtime/telemetry/world_member.hpp>

#include <filesystem>

using Catch::Matchers::ContainsSubstring;
using cox::file_of_process;

TEST_CASE("Files of the processes of a world have their numbers, other files do not") {
  CHECK(file_of_process("runs/trace.json") == "runs/trace.json");
  cox::set_world_member(cox::WorldMember{.process = 12, .processes = 16, .host = "node3"});
  CHECK(file_of_process("runs/trace.json") == "runs/trace.12.json");
  CHECK(file_of_process("dump") == "dump.12");
  CHECK(file_of_process("").empty());
  cox::set_world_clock(-5, 3);
  CHECK(cox::world_member()->clock_offset == -5);
  CHECK(cox::world_member()->clock_error == 3U);
  cox::set_world_member({});
  cox::set_world_clock(7, 1);  // of no world: ignored
  CHECK_FALSE(cox::world_member());
}

TEST_CASE("Metrics of a process of a world have its number") {
  cox::metrics::MetricSet set;
  set.gauge("cox_example", "An example.", {{"device", "host:0"}}, 1);
  CHECK_THAT(cox::metrics::prometheus_text(set), !ContainsSubstring("process="));
  cox::set_world_member(cox::WorldMember{.process = 1, .processes = 2, .host = "node3"});
  CHECK_THAT(cox::metrics::prometheus_text(set), ContainsSubstring("process=\"1\""));
  cox::set_world_member({});
}
