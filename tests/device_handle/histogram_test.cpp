#include <coxswain/device_handle/base/histogram.hpp>

#include <coxswain/tests/support/catch.hpp>

#include <limits>

using cox::Histogram;

TEST_CASE("A histogram's buckets are monotonic, without gaps, and each holds its upper bound", "[histogram]") {
  for (std::size_t bucket = 0; bucket + 1 < Histogram::bucket_count; ++bucket) {
    const std::uint64_t bound = Histogram::upper_bound(bucket);
    REQUIRE(Histogram::bucket_of(bound) == bucket);
    REQUIRE(Histogram::bucket_of(bound + 1) == bucket + 1);
  }
  CHECK(Histogram::bucket_of(std::numeric_limits<std::uint64_t>::max()) == Histogram::bucket_count - 1);
  CHECK(Histogram::upper_bound(Histogram::bucket_count - 1) == std::numeric_limits<std::uint64_t>::max());
}

TEST_CASE("A quantile is never too low and at most a quarter too high", "[histogram]") {
  Histogram histogram;
  for (std::uint64_t value = 1; value <= 10'000; ++value) histogram.record(value * 100);
  for (const double q : {0.01, 0.25, 0.5, 0.9, 0.99, 0.999, 1.0}) {
    const auto exact = static_cast<double>(10'000 * 100) * q;
    CHECK(static_cast<double>(histogram.quantile(q)) >= exact);
    CHECK(static_cast<double>(histogram.quantile(q)) <= exact * 1.25);
  }
  CHECK(histogram.max() == 1'000'000);
  CHECK(histogram.quantile(1.0) == 1'000'000);
  CHECK(histogram.quantile(0.0) >= 100);
  CHECK(histogram.quantile(0.0) <= 125);
}

TEST_CASE("An empty histogram is all zero", "[histogram]") {
  const Histogram histogram;
  CHECK(histogram.count() == 0);
  CHECK(histogram.max() == 0);
  CHECK(histogram.quantile(0.5) == 0);
}

TEST_CASE("Merging adds the counts, and an empty histogram takes over the other's unit", "[histogram]") {
  Histogram one(2.0);
  one.record(10, 3);
  Histogram two(2.0);
  two.record(1000);
  Histogram sum;
  sum.merge(one);
  sum.merge(two);
  sum.merge(Histogram());
  CHECK(sum.count() == 4);
  CHECK(sum.max() == 2000);
  CHECK(sum.quantile(0.75) >= 20);
  CHECK(sum.quantile(0.75) <= 25);
}

TEST_CASE("A snapshot of a live histogram has what was recorded", "[histogram]") {
  cox::LiveHistogram live;
  for (std::uint64_t value = 1; value <= 100; ++value) live.record(value);
  const Histogram copy(live, 10.0);
  CHECK(copy.count() == 100);
  CHECK(copy.max() == 1000);
}
