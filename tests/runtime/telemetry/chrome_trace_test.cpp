#include <coxswain/runtime/trace/chrome_trace.hpp>

#include <coxswain/tests/runtime/telemetry/read_trace.hpp>
#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tests/support/temporary_file.hpp>

#include <coxswain/device_handle/base/error.hpp>

#include <fstream>
#include <sstream>

using cox::Outcome;
using cox::test::ReadTrace;
using cox::trace::Category;
using cox::trace::Event;
using cox::trace::Recording;
using cox::trace::Track;

namespace {

constexpr cox::DeviceId device{.type = 0, .index = 3};

Event event(const char* name, const Track& track, std::uint64_t begin, std::uint64_t end, Category category) {
  Event event;
  event.name = name;
  event.track = track;
  event.begin = begin;
  event.end = end;
  event.category = category;
  return event;
}

// A client hands a launch to a device thread, which hands it to a stream.
Recording launch() {
  const Track device_thread{.kind = Track::Kind::DeviceThread, .device = device, .id = 700};
  Recording recording;
  Event& task = recording.events.emplace_back(event("launch", device_thread, 5'000, 6'500, Category::Task));
  task.origin = {.time = 2'250, .thread = 42};
  task.outcome = Outcome::Failed;
  task.stream = {9};
  task.file = "step.cpp";
  task.line = 12;
  Event& kernel =
      recording.events.emplace_back(event("matmul", Track::stream(device, {9}), 7'000, 90'000, Category::Stream));
  kernel.origin = {.time = 6'000, .thread = 700};
  kernel.arguments[0] = {"cubes", 64};
  recording.threads[42] = "loader";
  recording.dropped = 5;
  return recording;
}

ReadTrace written(const Recording& recording) {
  std::ostringstream out;
  cox::trace::write_chrome_trace(out, recording);
  return ReadTrace(out.str());
}

}  // namespace

TEST_CASE("A task lies in its device's process with its wait, its stream, its outcome and its site") {
  const ReadTrace trace = written(launch());
  CHECK(trace.fault().empty());
  const auto slices = trace.slices("launch");
  REQUIRE(slices.size() == 2);
  CHECK(trace.row_of(slices[0]) == "client threads/loader 42");
  CHECK(slices[0]["ts"] == 2.25);
  CHECK(trace.row_of(slices[1]) == "device host:3/device thread");
  CHECK(slices[1]["ts"] == 5.0);
  CHECK(slices[1]["dur"] == 1.5);
  CHECK(slices[1]["cat"] == "task");
  CHECK(slices[1]["args"] ==
        nlohmann::json{{"wait_us", 2.75}, {"stream", 9}, {"outcome", "failed"}, {"site", "step.cpp:12"}});
  CHECK(trace.json()["otherData"]["dropped"] == "5");
}

TEST_CASE("An arrow leads from the client to the device thread and from there to the stream") {
  const ReadTrace trace = written(launch());
  const auto begins = trace.of("s");
  const auto ends = trace.of("f");
  REQUIRE(begins.size() == 2);
  REQUIRE(ends.size() == 2);
  const auto row_of_id = [&](const auto& arrows, int id) {
    for (const auto& arrow : arrows)
      if (arrow["id"] == id) return trace.row_of(arrow);
    return std::string();
  };
  CHECK(row_of_id(begins, 0) == "client threads/loader 42");
  CHECK(row_of_id(ends, 0) == "device host:3/device thread");
  CHECK(row_of_id(begins, 1) == "device host:3/device thread");
  CHECK(row_of_id(ends, 1) == "device host:3/stream 9");
  CHECK(trace.slices("matmul")[1]["args"] == nlohmann::json{{"wait_us", 1.0}, {"cubes", 64}});
}

TEST_CASE("The queue of a device thread is counted from submission to start") {
  const Track device_thread{.kind = Track::Kind::DeviceThread, .device = device, .id = 700};
  Recording recording;
  for (const std::uint64_t begin : {5'000U, 6'000U, 7'000U}) {
    Event& task = recording.events.emplace_back(event("task", device_thread, begin, begin + 900, Category::Task));
    task.origin = {.time = begin / 10, .thread = 42};
  }
  const ReadTrace trace = written(recording);
  std::vector<std::pair<double, int>> counts;
  for (const auto& count : trace.of("C")) counts.emplace_back(count["ts"], count["args"]["tasks"]);
  CHECK(counts == std::vector<std::pair<double, int>>{{0.5, 1}, {0.6, 2}, {0.7, 3}, {5, 2}, {6, 1}, {7, 0}});
}

TEST_CASE("Any name is written so that it can be read") {
  Recording recording;
  recording.events.push_back(event("\"quoted\\\"\n\x01", Track{.id = 1}, 0, 10, Category::Client));
  recording.threads[1] = "a \"thread\"";
  const ReadTrace trace = written(recording);
  CHECK(trace.slices("\"quoted\\\"\n\x01").size() == 1);
  CHECK(trace.row_of(trace.of("X")[0]) == "client threads/a \"thread\" 1");
}

TEST_CASE("An empty recording is a trace without slices") { CHECK(written({}).of("X").empty()); }

TEST_CASE("A trace file holds the trace, and one that cannot be written is an error that names it") {
  const cox::test::TemporaryFile file("what was there before");
  cox::trace::write_chrome_trace(std::filesystem::path(file.path()), launch());
  std::ostringstream text;
  text << std::ifstream(file.path()).rdbuf();
  CHECK(ReadTrace(text.str()).of("X").size() == 4);
  CHECK_THROWS_WITH(cox::trace::write_chrome_trace(std::filesystem::path("/nowhere/trace.json"), launch()),
                    Catch::Matchers::ContainsSubstring("/nowhere/trace.json"));
  CHECK_THROWS_WITH(cox::trace::write_chrome_trace(std::filesystem::path("/dev/full"), launch()),
                    Catch::Matchers::ContainsSubstring("/dev/full"));
}
