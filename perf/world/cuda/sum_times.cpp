#include <coxswain/perf/world/cuda/sum_times.hpp>

#include <coxswain/perf/harness/spread.hpp>
#include <coxswain/perf/harness/stopwatch.hpp>
#include <coxswain/runtime/base/byte_count.hpp>

#include <string>
#include <vector>

namespace cox::perf {
namespace {

constexpr std::size_t mebibyte = std::size_t{1} << 20U;
constexpr std::size_t small_sum = 8;
constexpr std::size_t small_in_a_stream = 1000;
constexpr std::size_t checked_elements = mebibyte / sizeof(float);

struct LargeSum {
  std::size_t bytes;
  std::size_t in_a_stream;
};

// The first one of a stream begins later than NCCL's, since threads have to pass it on: the more follow, the less that
// counts.
std::vector<LargeSum> large_sums(bool quick) {
  if (quick) return {{8 * mebibyte, 10}, {64 * mebibyte, 5}};
  return {{64 * mebibyte, 40}, {64 * mebibyte, 160}, {256 * mebibyte, 20}, {256 * mebibyte, 80}};
}

float pattern(std::size_t element) { return static_cast<float>(element % 1021 + 1); }

// The median of the streams, in microseconds for each operation.
double time_in_a_stream(SumRank& own, std::size_t bytes, std::size_t operations, std::size_t streams) {
  const auto once = [&] {
    for (std::size_t i = 0; i < operations; ++i) own.all_reduce(bytes);
    own.wait();
  };
  once();
  std::vector<double> taken = microseconds_of_each(streams, once);
  return quantile(taken, 0.5) / static_cast<double>(operations);
}

std::vector<double> times_one_at_a_time(SumRank& own, std::size_t bytes, std::size_t times) {
  const auto once = [&] {
    own.all_reduce(bytes);
    own.wait();
  };
  for (std::size_t i = 0; i < times / 10; ++i) once();
  return microseconds_of_each(times, once);
}

// Other values for each size, so that an earlier result is not taken for a later one.
void fill(SumRank& own, std::size_t rank, float factor) {
  std::vector<float> values(checked_elements);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(rank + 1) * factor * pattern(i);
  own.fill(values);
}

// Elements of the last result that are not the sum of both ranks. The sums are exact.
double count_wrong(SumRank& own, float factor, std::size_t elements) {
  std::vector<float> values(elements);
  own.get_result(values);
  double wrong = 0;
  for (std::size_t i = 0; i < elements; ++i) wrong += values[i] == 3 * factor * pattern(i) ? 0 : 1;
  return wrong;
}

}  // namespace

std::size_t largest_sum(bool quick) { return large_sums(quick).back().bytes; }

std::vector<Metric> sum_metrics(bool quick) {
  std::vector<Metric> metrics{{"8 bytes, 1000 in a stream, each", "us"},
                              {"8 bytes, one at a time, p50", "us"},
                              {"8 bytes, one at a time, p99", "us"}};
  for (const LargeSum& large : large_sums(quick))
    metrics.push_back({"bus bandwidth, " + std::to_string(large.in_a_stream) + " of " +
                           cox::exact_byte_count(large.bytes) + " in a stream",
                       "GB/s", true});
  metrics.push_back({"wrong", "elements"});
  return metrics;
}

Sample take_sum_times(SumRank& own, std::size_t rank, bool quick) {
  float factor = 1;
  fill(own, rank, factor);
  own.all_reduce(small_sum);  // creates what the first operation needs
  own.wait();

  Sample sample{time_in_a_stream(own, small_sum, small_in_a_stream, quick ? 3 : 20)};
  std::vector<double> alone = times_one_at_a_time(own, small_sum, quick ? 200 : 2000);
  sample.push_back(quantile(alone, 0.5));
  sample.push_back(quantile(alone, 0.99));
  double wrong = count_wrong(own, factor, small_sum / sizeof(float));
  for (const LargeSum& large : large_sums(quick)) {
    fill(own, rank, ++factor);
    const double taken = time_in_a_stream(own, large.bytes, large.in_a_stream, quick ? 1 : 5);
    // Each of two ranks sends 2 (n - 1) / n = 1 times the bytes, as nccl-tests counts.
    sample.push_back(static_cast<double>(large.bytes) / 1000.0 / taken);
    wrong += count_wrong(own, factor, checked_elements);
  }
  sample.push_back(wrong);
  return sample;
}

}  // namespace cox::perf
