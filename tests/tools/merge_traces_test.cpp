#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/runtime/telemetry/world_member.hpp>
#include <coxswain/runtime/trace/chrome_trace.hpp>
#include <coxswain/runtime/trace/recording.hpp>
#include <coxswain/tools/cox/trace/merge_traces.hpp>

#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

using Catch::Matchers::ContainsSubstring;
using cox::WorldMember;
using cox::test::message_of;
using cox::tools::merge_traces;
using cox::tools::ProcessTrace;

namespace {

// What a process writes that has done one task, from 2 to 3 us after the start of its trace.
ProcessTrace trace_of(const std::string& file, const WorldMember& member, std::uint64_t started) {
  cox::trace::Recording recording;
  recording.started = started;
  cox::trace::Event task;
  task.name = "task";
  task.track.id = 7;
  task.begin = 2000;
  task.end = 3000;
  recording.events.push_back(task);
  recording.threads[7] = "trainer";
  cox::set_world_member(member);
  std::ostringstream out;
  cox::trace::write_chrome_trace(out, recording);
  cox::set_world_member({});
  return {.file = file, .json = nlohmann::json::parse(out.str())};
}

std::vector<nlohmann::json> named(const nlohmann::json& merged, const std::string& name) {
  std::vector<nlohmann::json> found;
  for (const nlohmann::json& event : merged["traceEvents"])
    if (event["name"] == name) found.push_back(event);
  return found;
}

}  // namespace

TEST_CASE("Traces of the processes of a world are merged on one clock, the rows of each under its number") {
  const nlohmann::json merged = merge_traces(
      {trace_of("b", {.process = 1, .processes = 2, .host = "node1", .clock_offset = 500'000, .clock_error = 900},
                100'000),
       trace_of("a", {.process = 0, .processes = 2, .host = "node0", .clock_error = 0}, 610'000)});
  const auto tasks = named(merged, "task");
  REQUIRE(tasks.size() == 2);
  // Process 1 has started at 600 us of the leader's clock, 10 us before process 0.
  CHECK(tasks[0]["ts"] == 12.0);
  CHECK(tasks[1]["ts"] == 2.0);
  CHECK(tasks[0]["pid"] != tasks[1]["pid"]);
  const auto processes = named(merged, "process_name");
  REQUIRE(processes.size() == 2);
  CHECK_THAT(processes[0]["args"]["name"].get<std::string>(),
             ContainsSubstring("process 0 (node0, pid ") && ContainsSubstring("): client threads"));
  CHECK(processes[0]["pid"] == tasks[0]["pid"]);
  CHECK_THAT(processes[1]["args"]["name"].get<std::string>(), ContainsSubstring("process 1 (node1"));
  CHECK(merged["otherData"]["clock_error_ns"] == "900");
}

TEST_CASE("What cannot be merged is named") {
  const WorldMember member{.process = 1, .processes = 2, .host = "node1"};
  CHECK_THAT(message_of([&] { static_cast<void>(merge_traces({trace_of("a", member, 1), trace_of("b", member, 1)})); }),
             ContainsSubstring("'b' is of the same process as 'a'"));
  CHECK_THAT(message_of([] { static_cast<void>(merge_traces({{.file = "c", .json = nlohmann::json::array()}})); }),
             ContainsSubstring("'c' is no trace"));
  CHECK_THAT(message_of([] {
               static_cast<void>(merge_traces({{.file = "d", .json = {{"traceEvents", nlohmann::json::array()}}}}));
             }),
             ContainsSubstring("'d' was not written by a process of a world"));
  ProcessTrace broken = trace_of("e", member, 1);
  broken.json["traceEvents"].push_back({{"name", "x"}, {"pid", "one"}});
  CHECK_THAT(message_of([&] { static_cast<void>(merge_traces({broken})); }), ContainsSubstring("'e' is no trace"));
}
