#include <coxswain/tests/support/catch.hpp>

#include <coxswain/servers/host/detail/timeline.hpp>

#include <thread>
#include <vector>

using cox::detail::Timeline;

TEST_CASE("A timeline calls back when it reaches a value, once, lowest first") {
  Timeline timeline;
  std::vector<int> calls;
  timeline.when(2, [&] { calls.push_back(2); });
  timeline.when(1, [&] { calls.push_back(1); });
  timeline.when(0, [&] { calls.push_back(0); });
  REQUIRE(calls == std::vector<int>{0});
  timeline.advance();
  REQUIRE(calls == std::vector<int>{0, 1});
  timeline.advance();
  timeline.when(2, [&] { calls.push_back(22); });
  REQUIRE(calls == std::vector<int>{0, 1, 2, 22});
  REQUIRE(timeline.reached(2));
  REQUIRE_FALSE(timeline.reached(3));
}

TEST_CASE("Waiting for a timeline ends when it gets there") {
  Timeline timeline;
  std::thread thread([&] {
    for (int i = 0; i < 1000; ++i) timeline.advance();
  });
  timeline.wait(1000);
  REQUIRE(timeline.reached(1000));
  thread.join();
}
