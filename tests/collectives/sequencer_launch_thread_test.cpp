// Launches that only the launch thread of their device calls, and several requests at a time.

#include <coxswain/tests/collectives/sequencer_bench.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/collectives/sequencer/sequencer.hpp>
#include <coxswain/device_handle/base/call_error.hpp>
#include <coxswain/runtime/communication/collective_error.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

using namespace cox;
using namespace cox::test;
using namespace std::chrono_literals;
using Kind = CollectiveError::Kind;

namespace {

struct Attended : Bench {
  int notified = 0;

  Attended() {
    sequencer.set_launch_thread(device(0), [this] { ++notified; });
  }
  void submit_for_launch_thread(std::size_t rank, std::shared_ptr<CollectiveLaunch> launch) {
    sequencer.submit(pair, rank, {.requests = {of_count(1)}, .launch = std::move(launch), .on_launch_thread = true});
  }
};

CollectiveSubmissions several(std::size_t count, Told& told) {
  CollectiveSubmissions arrivals;
  for (std::size_t i = 0; i < count; ++i) arrivals.push_back({.requests = {of_count(1)}, .launch = told.launch()});
  return arrivals;
}

}  // namespace

TEST_CASE("Attended launches are called by drain_launches() alone, which is told once of all that wait") {
  Attended t;
  for (int i = 0; i < 2; ++i) {
    t.submit_for_launch_thread(0, t.a.launch());
    t.submit_for_launch_thread(1, t.b.launch());
  }
  CHECK(t.b.times() == 2);  // the other device has no launch thread
  CHECK(t.a.times() == 0);
  CHECK(t.notified == 1);
  t.sequencer.drain_launches(device(0));
  CHECK(t.a.times() == 2);
  CHECK(t.a.turns.back().sequence == 2);
  t.submit_for_launch_thread(0, t.a.launch());
  t.submit_for_launch_thread(1, t.b.launch());
  CHECK(t.notified == 2);
  t.sequencer.drain_launches(device(0));
  CHECK(t.a.times() == 3);
  t.sequencer.drain_launches(device(0));
  t.sequencer.drain_launches(device(7));  // of which nobody has heard
  CHECK(t.a.times() == 3);
}

TEST_CASE(
    "What is for any thread is called at once, but not before a launch for the launch thread that comes before it") {
  Attended t;
  std::string order;
  const auto note = [&](char c) { return launch_of([&order, c](const LaunchGrant&) { order += c; }); };
  t.submit(t.pair, 0, of_count(1), note('1'));
  t.submit(t.pair, 1, of_count(1), t.b.launch());
  CHECK(order == "1");
  t.submit_for_launch_thread(0, note('2'));
  t.submit_for_launch_thread(1, t.b.launch());
  t.submit(t.pair, 0, of_count(1), note('3'));
  t.submit(t.pair, 1, of_count(1), t.b.launch());
  CHECK(order == "1");
  t.sequencer.drain_launches(device(0));
  CHECK(order == "123");
  t.submit(t.pair, 0, of_count(1), note('4'));
  t.submit(t.pair, 1, of_count(1), t.b.launch());
  CHECK(order == "1234");
  CHECK(t.notified == 1);
}

TEST_CASE(
    "Without its launch thread a device's launches are called by whoever releases them, and those that wait at once") {
  Attended t;
  t.submit_for_launch_thread(0, t.a.launch());
  t.submit_for_launch_thread(1, t.b.launch());
  CHECK(t.a.times() == 0);
  t.sequencer.set_launch_thread(device(0), {});
  CHECK(t.a.times() == 1);
  t.submit_for_launch_thread(0, t.a.launch());
  t.submit_for_launch_thread(1, t.b.launch());
  CHECK(t.a.times() == 2);
}

TEST_CASE("A launch on the launch thread may submit, and is refused like any") {
  Attended t;
  t.submit_for_launch_thread(0, launch_of([&](const LaunchGrant&) { t.submit_for_launch_thread(0, t.a.launch()); }));
  t.submit_for_launch_thread(1, t.b.launch());
  t.sequencer.drain_launches(device(0));
  t.submit_for_launch_thread(1, t.b.launch());
  t.sequencer.drain_launches(device(0));
  CHECK(t.a.times() == 1);
  t.submit_for_launch_thread(0, t.a.launch());
  t.sequencer.abort(t.pair, std::make_exception_ptr(std::runtime_error("enough")));
  CHECK(t.a.times() == 1);
  t.sequencer.drain_launches(device(0));
  CHECK(t.a.refusal() == Kind::Aborted);
}

// The rank may hold operations back, for instance while NCCL creates the communicator.
TEST_CASE("A launch thread is notified when a communicator of its device breaks, also if nothing was submitted") {
  Attended t;
  const CommunicatorNumber others = t.sequencer.open(among({1, 2}), 1h);
  t.sequencer.abort(others, std::make_exception_ptr(std::runtime_error("not of this device")));
  CHECK(t.notified == 0);
  SECTION("aborted") { t.sequencer.abort(t.pair, std::make_exception_ptr(std::runtime_error("enough"))); }
  SECTION("closed") { t.sequencer.close(t.pair); }
  SECTION("a device leaves") { t.sequencer.leave(device(1)); }
  SECTION("aborted, with a refusal that any thread may call") {
    t.submit(t.pair, 0, of_count(1), t.a.launch());
    t.sequencer.abort(t.pair, std::make_exception_ptr(std::runtime_error("enough")));
    CHECK(t.a.refusal() == Kind::Aborted);
  }
  CHECK(t.notified == 1);
  t.sequencer.drain_launches(device(0));
  t.sequencer.set_launch_thread(device(0), {});
}

TEST_CASE("When a launch thread is removed, no other thread is in the call that notifies it") {
  Sequencer sequencer;
  const CommunicatorNumber pair = sequencer.open(among({0, 1}), 1h);
  std::promise<void> entered;
  std::promise<void> may_return;
  std::atomic<bool> has_returned{false};
  sequencer.set_launch_thread(device(0), [&] {
    entered.set_value();
    may_return.get_future().wait();
    has_returned = true;
  });
  auto breaking = std::async(std::launch::async,
                             [&] { sequencer.abort(pair, std::make_exception_ptr(std::runtime_error("enough"))); });
  entered.get_future().wait();
  auto removed = std::async(std::launch::async, [&] {
    sequencer.set_launch_thread(device(0), {});
    return has_returned.load();
  });
  CHECK(removed.wait_for(50ms) == std::future_status::timeout);
  may_return.set_value();
  CHECK(removed.get());
  breaking.get();
}

TEST_CASE("Attendants of several threads get every launch once, in one order") {
  constexpr std::size_t ranks = 3;
  constexpr std::uint64_t count = 2000;
  Sequencer sequencer({.max_ahead = 64});
  const std::vector<CommunicatorNumber> communicators{sequencer.open(among({0, 1, 2}), 1h),
                                                      sequencer.open(among({0, 1, 2}), 1h)};
  std::vector<std::vector<std::uint64_t>> orders(ranks);
  std::vector<std::atomic<bool>> rung(ranks);
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < ranks; ++rank)
    sequencer.set_launch_thread(device(static_cast<std::uint16_t>(rank)), [&rung, rank] { rung[rank] = true; });
  for (std::size_t rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      const auto drain_launches = [&] {
        if (rung[rank].exchange(false)) sequencer.drain_launches(device(static_cast<std::uint16_t>(rank)));
      };
      std::vector<std::uint64_t> left(communicators.size(), count);
      while (orders[rank].size() < communicators.size() * count) {
        for (std::size_t c = 0; c < communicators.size(); ++c) {
          CollectiveSubmissions arrivals;
          for (std::size_t i = 0; i < std::min<std::uint64_t>(left[c], 1 + rank); ++i)
            arrivals.push_back({.requests = {of_count(1)},
                                .launch = launch_of(
                                    [&orders, rank](const LaunchGrant& grant) { orders[rank].push_back(grant.order); }),
                                .on_launch_thread = true});
          try {
            const std::size_t offered = arrivals.size();
            if (offered != 0) sequencer.submit(communicators[c], rank, arrivals, offered);
            left[c] -= offered - arrivals.size();
          } catch (const CallError&) {  // too far ahead: the others must come first
            std::this_thread::yield();
          }
          drain_launches();
        }
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    CHECK(orders[rank].size() == communicators.size() * count);
    CHECK(orders[rank] == orders[0]);
    CHECK(std::ranges::is_sorted(orders[rank]));
  }
}

TEST_CASE("Several requests of a rank are taken as if they came one by one") {
  Bench t;
  auto mine = several(2, t.a);
  CHECK(t.sequencer.submit(t.pair, 0, mine, 2) == 1);
  CHECK(mine.empty());
  t.submit(t.pair, 1, of_count(1), t.b.launch());
  CHECK(t.a.times() == 1);
  auto theirs = several(2, t.b);
  theirs.front().requests.front().count = 2;  // the second of the other
  CHECK(t.sequencer.submit(t.pair, 1, theirs, 2) == 2);
  REQUIRE(t.a.times() == 2);
  CHECK(t.a.refusal() == Kind::Mismatch);
  t.submit(t.pair, 0, of_count(1), t.a.launch());
  CHECK(t.a.times() == 3);
  CHECK_FALSE(t.a.turns.back().refusal);
}

TEST_CASE("Of several requests those before the first that cannot be taken are, and the others stay as they are") {
  Bench t;
  auto arrivals = several(6, t.a);
  CHECK(t.sequencer.submit(t.pair, 0, arrivals, 1) == 1);
  CHECK(arrivals.size() == 5);
  CHECK(t.sequencer.submit(t.pair, 0, arrivals, 5) == 2);
  const auto all_left_are_whole = [&] {
    return std::ranges::all_of(arrivals, [](const auto& each) { return each.launch && each.requests.size() == 1; });
  };
  CHECK(arrivals.size() == 3);  // Bench: a rank may be 3 ahead
  CHECK(all_left_are_whole());
  CHECK(kind_of<CallError>([&] { t.sequencer.submit(t.pair, 0, arrivals, 3); }) == CallError::Kind::QueueFull);
  CHECK(arrivals.size() == 3);
  CHECK(all_left_are_whole());
  t.submit(t.pair, 1, of_count(1), t.b.launch());
  CHECK(t.sequencer.submit(t.pair, 0, arrivals, 3) == 4);
  CHECK(arrivals.size() == 2);
}
