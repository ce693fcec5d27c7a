#include <coxswain/tests/support/catch.hpp>

#include <coxswain/runtime/handle/biased_ref_count.hpp>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <thread>
#include <utility>
#include <vector>

using cox::detail::BiasedRefCount;

TEST_CASE("References that are given out and those in reserve are all that were counted") {
  std::atomic<std::uint32_t> references{1};
  BiasedRefCount reserve;
  for (std::uint32_t given = 1; given <= 100; ++given) {
    reserve.take(references);
    CHECK(references >= 1 + given);
  }
  CHECK(references == 1U + 100 + reserve.give_up());
  CHECK(reserve.give_up() == 0);
}

TEST_CASE("The count is touched once for many references") {
  std::atomic<std::uint32_t> references{1};
  BiasedRefCount reserve;
  unsigned touched = 0;
  for (int i = 0; i < 2'560; ++i) {
    const std::uint32_t before = references;
    reserve.take(references);
    touched += references != before ? 1U : 0U;
  }
  CHECK(touched == 10);
}

TEST_CASE("The count is touched once for many references by threads that come later, too") {
  std::atomic<std::uint32_t> references{1};
  BiasedRefCount reserve;
  reserve.take(references);
  unsigned touched = 0;
  std::thread([&] {
    for (int i = 0; i < 2'560; ++i) {
      const std::uint32_t before = references;
      reserve.take(references);
      touched += references != before ? 1U : 0U;
    }
  }).join();
  CHECK(touched == 10);
  CHECK(references == 1U + 1 + 2'560 + reserve.give_up());
}

TEST_CASE("A reserve goes with what is moved and swapped") {
  std::atomic<std::uint32_t> references{1};
  BiasedRefCount first;
  first.take(references);
  BiasedRefCount second(std::move(first));
  CHECK(first.give_up() == 0);  // NOLINT(bugprone-use-after-move): that is what is asked
  BiasedRefCount third;
  third.swap(second);
  CHECK(second.give_up() == 0);
  third.take(references);  // from what came with it
  CHECK(references == 1U + 2 + third.give_up());
}

TEST_CASE("A reserve does not grow, however often it is moved and whoever takes from it") {
  std::atomic<std::uint32_t> references{1};
  BiasedRefCount reserve;
  std::uint32_t given = 0;
  std::uint32_t most_left = 0;
  std::thread([&] {
    for (int i = 0; i < 100; ++i, ++given) reserve.take(references);
  }).join();
  for (int i = 0; i < 1000; ++i) {
    std::thread([&] { reserve.take(references); }).join();  // whose it is now, or one of the others
    reserve.take(references);
    given += 2;
    BiasedRefCount moved(std::move(reserve));
    reserve.swap(moved);
    most_left = std::max(most_left, references - 1 - given);
  }
  CHECK(most_left <= 1'024);
  CHECK(references == 1U + given + reserve.give_up());
}

TEST_CASE("Any number of threads may take from a reserve at a time") {
  std::atomic<std::uint32_t> references{1};
  BiasedRefCount reserve;
  std::vector<std::thread> threads;
  reserve.take(references);
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 10'000; ++i) reserve.take(references);
    });
  for (int i = 0; i < 10'000; ++i) reserve.take(references);  // whose it is, all the while
  for (std::thread& thread : threads) thread.join();
  CHECK(references == 1U + 50'001 + reserve.give_up());
}
