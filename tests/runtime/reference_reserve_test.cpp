#include <coxswain/tests/support/catch.hpp>

#include <coxswain/runtime/detail/reference_reserve.hpp>

#include <atomic>
#include <cstdint>
#include <thread>
#include <utility>
#include <vector>

using cox::detail::ReferenceReserve;

TEST_CASE("References that are given out and those in reserve are all that were counted") {
  std::atomic<std::uint32_t> references{1};
  ReferenceReserve reserve;
  for (std::uint32_t given = 1; given <= 100; ++given) {
    reserve.take(references);
    CHECK(references >= 1 + given);
  }
  CHECK(references == 1 + 100 + reserve.give_up());
  CHECK(reserve.give_up() == 0);
}

TEST_CASE("The count is touched once for many references") {
  std::atomic<std::uint32_t> references{1};
  ReferenceReserve reserve;
  unsigned touched = 0;
  for (int i = 0; i < 320; ++i) {
    const std::uint32_t before = references;
    reserve.take(references);
    touched += references != before ? 1U : 0U;
  }
  CHECK(touched == 10);
}

TEST_CASE("A reserve goes with what is moved and swapped") {
  std::atomic<std::uint32_t> references{1};
  ReferenceReserve first;
  first.take(references);
  ReferenceReserve second(std::move(first));
  CHECK(first.give_up() == 0);  // NOLINT(bugprone-use-after-move): that is what is asked
  ReferenceReserve third;
  third.swap(second);
  CHECK(second.give_up() == 0);
  CHECK(references == 1 + 1 + third.give_up());
}

TEST_CASE("Any number of threads may take from a reserve at a time") {
  std::atomic<std::uint32_t> references{1};
  ReferenceReserve reserve;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 10'000; ++i) reserve.take(references);
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(references == 1 + 40'000 + reserve.give_up());
}
