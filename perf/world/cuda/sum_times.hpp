#pragma once

#include <coxswain/perf/harness/suite.hpp>

#include <cstddef>
#include <span>
#include <vector>

namespace cox::perf {

/// One rank of sums of f32 over two GPUs, with a buffer of inputs and one of results. Used by one thread.
class SumRank {
 public:
  SumRank() = default;
  SumRank(const SumRank&) = delete;
  SumRank& operator=(const SumRank&) = delete;
  virtual ~SumRank() = default;

  /// Issues an all_reduce of the first `bytes` of the inputs to the results.
  virtual void all_reduce(std::size_t bytes) = 0;
  /// Blocks until all operations of the rank have completed.
  virtual void wait() = 0;
  /// Sets the first inputs. Blocks.
  virtual void fill(std::span<const float> values) = 0;
  /// Reads the first results. Blocks.
  virtual void get_result(std::span<float> values) = 0;
};

/// The bytes of each buffer that take_sum_times() needs.
[[nodiscard]] std::size_t largest_sum(bool quick);
/// What it measures, in the order of its sample.
[[nodiscard]] std::vector<Metric> sum_metrics(bool quick);
/// Measures the sums of this rank, number `rank` of two. The other rank must call it as well. Blocks.
[[nodiscard]] Sample take_sum_times(SumRank& own, std::size_t rank, bool quick);

}  // namespace cox::perf
