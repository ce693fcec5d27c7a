#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/servers/cuda/compile/once_map.hpp>

#include <atomic>
#include <latch>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

using cox::detail::OnceMap;
using cox::test::message_of;

TEST_CASE("A value is made once for each key, by whoever asks first") {
  OnceMap<int, std::string> values;
  int made = 0;
  const std::string& first = values.get(1, [&] { return ++made, std::string("one"); });
  const std::string& again = values.get(1, [&] { return ++made, std::string("other"); });
  CHECK(&first == &again);
  CHECK(first == "one");
  CHECK(values.get(2, [&] { return ++made, std::string("two"); }) == "two");
  CHECK(made == 2);
}

TEST_CASE("Those who ask for a value that is being made wait for it, those who ask for another do not") {
  OnceMap<int, int> values;
  std::latch making(1);
  std::latch other_made(1);
  std::atomic<int> made{0};
  std::vector<std::jthread> threads;
  threads.emplace_back([&] {
    values.get(1, [&] {
      making.count_down();
      other_made.wait();  // hangs unless key 2 can be made meanwhile
      return ++made;
    });
  });
  making.wait();
  std::atomic<int> sum{0};
  for (int i = 0; i < 4; ++i) threads.emplace_back([&] { sum += values.get(1, [&] { return ++made; }); });
  CHECK(values.get(2, [] { return 7; }) == 7);
  other_made.count_down();
  threads.clear();
  CHECK(made == 1);
  CHECK(sum == 4);
}

TEST_CASE("That a value cannot be made is kept, unless only memory was missing") {
  OnceMap<int, int> values;
  CHECK(message_of([&] { values.get(1, []() -> int { throw std::runtime_error("no"); }); }) == "no");
  CHECK(message_of([&] { values.get(1, [] { return 1; }); }) == "no");
  CHECK_THROWS_AS(values.get(2, []() -> int { throw std::bad_alloc(); }), std::bad_alloc);
  CHECK(values.get(2, [] { return 2; }) == 2);
}
