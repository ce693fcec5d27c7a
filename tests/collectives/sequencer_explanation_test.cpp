#include <coxswain/tests/collectives/sequencer_bench.hpp>
#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace cox;
using namespace cox::test;
using namespace std::chrono_literals;

TEST_CASE("L15: an operation that misses ranks is explained once, when a thread waits for one that came") {
  Told a, b;
  const Watchdog::Time start = std::chrono::steady_clock::now();
  std::vector<DeviceId> awaited;
  std::vector<std::string> texts;
  Sequencer sequencer{{.explain_after = 1s,
                       .awaited_devices =
                           [&](Watchdog::Time, std::chrono::milliseconds at_least) {
                             CHECK(at_least == 500ms);
                             return awaited;
                           },
                       .explain = [&](const std::string& text) { texts.push_back(text); },
                       .now = [start] { return start; }}};
  const CommunicatorNumber pair = sequencer.open(among({0, 1}), 1h);
  sequencer.submit(pair, 0, {.requests = {of_count(1)}, .launch = a.launch()});
  awaited = {device(0)};
  CHECK(sequencer.expire(start + 999ms) == start + 1249ms);
  awaited = {device(1)};
  CHECK(sequencer.expire(start + 1249ms) == start + 1499ms);
  CHECK(texts.empty());
  awaited = {device(2), device(0)};
  CHECK(sequencer.expire(start + 1499ms) == start + 1h);
  REQUIRE(texts.size() == 1);
  CHECK(mentions(texts[0], {"a thread waits for host:0", "was not submitted by all ranks within 1499 ms",
                            "host:1 is missing", "must submit for all of them before it waits for one"}));
  sequencer.expire(start + 2s);
  CHECK(texts.size() == 1);
  sequencer.submit(pair, 1, {.requests = {of_count(1)}, .launch = b.launch()});
  CHECK(a.times() == 1);
  sequencer.submit(pair, 0, {.requests = {of_count(1)}, .launch = a.launch()});
  sequencer.expire(start + 1s);
  CHECK(texts.size() == 2);
}

TEST_CASE("L15: the watchdog's thread stays as long as operations come, and ends when none has come since its look") {
  Told a, b;
  const Watchdog::Time start = std::chrono::steady_clock::now();
  std::atomic<int> looks{0};  // those that have returned and left the thread waiting
  std::atomic<int> threads{0};
  const auto in_look = []() -> bool& {
    thread_local bool value = false;
    return value;
  };
  Sequencer sequencer{{.explain_after = 1s,
                       .awaited_devices =
                           [&](Watchdog::Time, std::chrono::milliseconds) {
                             thread_local bool counted = false;
                             if (!std::exchange(counted, true)) ++threads;
                             in_look() = true;
                             return std::vector<DeviceId>();
                           },
                       .explain = [](const std::string&) {},
                       .now =
                           [&] {
                             if (std::exchange(in_look(), false)) ++looks;  // the watchdog's thread, behind its look
                             return start;
                           }}};
  const CommunicatorNumber pair = sequencer.open(among({0, 1}), 1h);
  auto look = [&] {
    sequencer.freeze();
    sequencer.thaw();  // which has the watchdog look again
  };
  for (int round = 1; round <= 20; ++round) {
    sequencer.submit(pair, 0, {.requests = {of_count(1)}, .launch = a.launch()});
    sequencer.submit(pair, 1, {.requests = {of_count(1)}, .launch = b.launch()});
    look();
    while (looks != round && sequencer.watching()) std::this_thread::yield();
    REQUIRE(looks == round);
  }
  CHECK(threads == 1);
  look();
  while (sequencer.watching()) std::this_thread::yield();
}
