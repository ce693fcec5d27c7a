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
    reserve.add_reference(references);
    CHECK(references >= 1 + given);
  }
  CHECK(references == 1U + 100 + reserve.release_all());
  CHECK(reserve.release_all() == 0);
}

TEST_CASE("The count is touched once for many references") {
  std::atomic<std::uint32_t> references{1};
  BiasedRefCount reserve;
  unsigned touched = 0;
  for (int i = 0; i < 2'560; ++i) {
    const std::uint32_t before = references;
    reserve.add_reference(references);
    touched += references != before ? 1U : 0U;
  }
  CHECK(touched == 10);
}

TEST_CASE("The count is touched once for many references by threads that come later, too") {
  std::atomic<std::uint32_t> references{1};
  BiasedRefCount reserve;
  reserve.add_reference(references);
  unsigned touched = 0;
  std::thread([&] {
    for (int i = 0; i < 2'560; ++i) {
      const std::uint32_t before = references;
      reserve.add_reference(references);
      touched += references != before ? 1U : 0U;
    }
  }).join();
  CHECK(touched == 10);
  CHECK(references == 1U + 1 + 2'560 + reserve.release_all());
}

TEST_CASE("A reserve goes with what is moved and swapped") {
  std::atomic<std::uint32_t> references{1};
  BiasedRefCount first;
  first.add_reference(references);
  BiasedRefCount second(std::move(first));
  CHECK(first.release_all() == 0);  // NOLINT(bugprone-use-after-move): that is what is asked
  BiasedRefCount third;
  third.swap(second);
  CHECK(second.release_all() == 0);
  third.add_reference(references);  // from what came with it
  CHECK(references == 1U + 2 + third.release_all());
}

TEST_CASE("A reserve does not grow, however often it is moved and whoever takes from it") {
  std::atomic<std::uint32_t> references{1};
  BiasedRefCount reserve;
  std::uint32_t given = 0;
  std::uint32_t most_left = 0;
  std::thread([&] {
    for (int i = 0; i < 100; ++i, ++given) reserve.add_reference(references);
  }).join();
  for (int i = 0; i < 1000; ++i) {
    std::thread([&] { reserve.add_reference(references); }).join();  // whose it is now, or one of the others
    reserve.add_reference(references);
    given += 2;
    BiasedRefCount moved(std::move(reserve));
    reserve.swap(moved);
    most_left = std::max(most_left, references - 1 - given);
  }
  CHECK(most_left <= 1'024);
  CHECK(references == 1U + given + reserve.release_all());
}

TEST_CASE("Any number of threads may take from a reserve at a time") {
  std::atomic<std::uint32_t> references{1};
  BiasedRefCount reserve;
  std::vector<std::thread> threads;
  reserve.add_reference(references);
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 10'000; ++i) reserve.add_reference(references);
    });
  for (int i = 0; i < 10'000; ++i) reserve.add_reference(references);  // whose it is, all the while
  for (std::thread& thread : threads) thread.join();
  CHECK(references == 1U + 50'001 + reserve.release_all());
}
