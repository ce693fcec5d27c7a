#include <coxswain/runtime/trace/trace.hpp>

#include <coxswain/tests/runtime/telemetry/read_trace.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/device_handle/base/shutdown.hpp>
#include <coxswain/device_handle/handle/device_handle.hpp>
#include <coxswain/runtime/trace/chrome_trace.hpp>

#include <algorithm>
#include <atomic>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace trace = cox::trace;
using cox::test::ReadTrace;
using trace::Category;
using trace::Event;
using trace::Recording;
using trace::Span;
using trace::Track;

namespace {

struct Recorded {
  explicit Recorded(cox::DeviceId) {}
};

std::vector<std::string> names(const Recording& recording) {
  std::vector<std::string> names;
  for (const Event& event : recording.events) names.emplace_back(event.name);
  return names;
}

}  // namespace

TEST_CASE("Nothing is recorded unless a trace was started, and nothing after it was stopped") {
  CHECK_FALSE(trace::enabled());
  {
    const Span span("before", Category::Client);
  }
  CHECK(trace::origin().time == 0);
  trace::start();
  CHECK(trace::enabled());
  {
    const Span span("during", Category::Client);
  }
  CHECK(names(trace::stop()) == std::vector<std::string>{"during"});
  CHECK_FALSE(trace::enabled());
  {
    const Span span("after", Category::Client);
  }
  CHECK(trace::stop().events.empty());
}

TEST_CASE("A span lasts from its construction to its destruction and carries what it was given") {
  trace::start();
  const auto from = trace::origin();
  {
    Span outer("outer", Track::stream({.type = 0, .index = 1}, {7}), Category::Stream, from);
    outer.argument("bytes", 4096);
    outer.argument("cubes", 3);
    outer.argument("too many", 1);
    const Span inner("inner", Category::Client);
  }
  const Recording recording = trace::stop();
  REQUIRE(names(recording) == std::vector<std::string>{"outer", "inner"});
  const Event& outer = recording.events[0];
  const Event& inner = recording.events[1];
  CHECK(outer.begin <= inner.begin);
  CHECK(inner.end <= outer.end);
  CHECK(outer.origin.time <= outer.begin);
  CHECK(outer.origin.thread == cox::this_thread_number());
  CHECK(outer.track == Track::stream({.type = 0, .index = 1}, {7}));
  CHECK(std::string(outer.arguments[0].name) == "bytes");
  CHECK(outer.arguments[0].value == 4096);
  CHECK(std::string(outer.arguments[1].name) == "cubes");
  CHECK(inner.track == Track::this_thread());
}

TEST_CASE("A new start forgets what was recorded before") {
  trace::start();
  {
    const Span span("first", Category::Client);
  }
  trace::start();
  {
    const Span span("second", Category::Client);
  }
  CHECK(names(trace::stop()) == std::vector<std::string>{"second"});
}

TEST_CASE("L7: a recording keeps the last events within its capacity and counts the others") {
  trace::start({.capacity = 2048});
  Event event;
  event.name = "event";
  for (std::uint64_t i = 1; i <= 10'000; ++i) {
    event.begin = event.end = trace::now();
    event.arguments[0] = {"number", i};
    trace::record(event);
  }
  const Recording recording = trace::stop();
  CHECK(recording.events.size() <= 2048);
  CHECK(recording.events.size() + recording.dropped == 10'000);
  CHECK(recording.events.back().arguments[0].value == 10'000);
}

TEST_CASE("No event is lost between threads, however they come and go, and each is whole") {
  trace::start({.capacity = 200'000});
  constexpr int threads = 4;
  constexpr std::uint64_t each = 10'000;
  for (int round = 0; round < 3; ++round) {
    std::vector<std::jthread> writers;
    for (std::uint64_t writer = 0; writer < threads; ++writer) {
      writers.emplace_back([writer] {
        Event event;
        event.name = "event";
        for (std::uint64_t i = 0; i < each; ++i) {
          event.begin = event.end = trace::now();
          event.arguments = {{{"writer", writer}, {"check", writer + i}}};
          event.line = static_cast<std::uint32_t>(i);
          trace::record(event);
        }
      });
    }
  }
  const Recording recording = trace::stop();
  CHECK(recording.dropped == 0);
  REQUIRE(recording.events.size() == 3 * threads * each);
  CHECK(std::ranges::is_sorted(recording.events, {}, &Event::begin));
  CHECK(std::ranges::all_of(recording.events, [](const Event& event) {
    return event.arguments[1].value == event.arguments[0].value + event.line;
  }));
}

TEST_CASE("A trace may be started and stopped while threads record") {
  std::atomic<bool> done{false};
  std::atomic<std::uint64_t> written{0};
  std::vector<std::jthread> writers;
  for (int writer = 0; writer < 2; ++writer) {
    writers.emplace_back([&] {
      while (!done) {
        const Span span("span", Category::Client);
        written.fetch_add(1, std::memory_order_relaxed);
      }
    });
  }
  std::size_t seen = 0;
  while (written < 10'000 || seen == 0) {
    trace::start({.capacity = 1024});
    const std::uint64_t before = written;
    while (written < before + 100) std::this_thread::yield();
    const Recording recording = trace::stop();
    seen += recording.events.size();
    for (const Event& event : recording.events) REQUIRE(std::string_view(event.name) == "span");
  }
  done = true;
}

TEST_CASE("Each task becomes an event that says what it was, from where to where") {
  trace::start();
  const cox::DeviceId device{.type = 0, .index = 77};
  auto handle = cox::DeviceHandle<Recorded>::get(device);
  for (int i = 0; i < 1000; ++i) handle.submit([](Recorded&) { cox::name_operation("count"); });
  handle.submit([handle](Recorded&) { handle.submit([](Recorded&) { cox::name_operation("again"); }); },
                cox::CallOptions{.label = "nest"});
  handle.submit_blocking([](Recorded&) {});
  cox::shutdown(device);
  const Recording recording = trace::stop();
  std::ostringstream json;
  trace::write_chrome_trace(json, recording);
  const ReadTrace read(json.str());

  CHECK(read.fault().empty());
  const bool timed = cox::stamps_are_time();
  CHECK(read.slices("count").size() == (timed ? 2000U : 1000U));
  CHECK(read.row_of(read.slices("nest").back()) == "device host:77/device thread");
  CHECK_THAT(read.slices("nest").back()["args"]["site"].get<std::string>(),
             Catch::Matchers::ContainsSubstring("trace_test.cpp:"));
  CHECK(read.slices("again").size() == (timed ? 2U : 1U));
  // What a task submits comes from its device thread.
  CHECK(read.row_of(read.slices("again").front()) == "device host:77/device thread");
  CHECK(std::ranges::any_of(names(recording), [](const auto& name) { return name.starts_with("submit_blocking "); }));
}

TEST_CASE("An interned text is one for all, and keeps what it said") {
  std::string text = "kernel";
  const char* const first = trace::intern(text);
  text = "another";
  CHECK(trace::intern("kernel") == first);
  CHECK(trace::intern(text) != first);
  CHECK(std::string(first) == "kernel");
}
