#pragma once

#include <coxswain/device_handle/base/live_histogram.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace cox {

/// Counts of durations, in the buckets of HistogramBuckets: a quantile is at most 25 % too high. A plain value; not
/// thread-safe.
class Histogram : public HistogramBuckets {
 public:
  Histogram() = default;

  /// A histogram in which one unit of a recorded value is `nanoseconds_per_unit`.
  explicit Histogram(double nanoseconds_per_unit) : scale_(nanoseconds_per_unit) {}

  /// The values that `live` has recorded so far. Each count is exact; their sum may lag behind the recording thread.
  Histogram(const LiveHistogram& live, double nanoseconds_per_unit) noexcept
      : counts_(live.counts()), max_(live.max()), scale_(nanoseconds_per_unit) {
    for (const std::uint64_t count : counts_) count_ += count;
  }

  void record(std::uint64_t value, std::uint64_t times = 1) noexcept {
    counts_[bucket_of(value)] += times;
    count_ += times;
    max_ = std::max(max_, value);
  }

  /// Adds the counts of `other`. An empty histogram takes the unit of `other`; otherwise the units must be equal.
  void merge(const Histogram& other) noexcept {
    if (count_ == 0) scale_ = other.scale_;
    for (std::size_t i = 0; i < bucket_count; ++i) counts_[i] += other.counts_[i];
    count_ += other.count_;
    max_ = std::max(max_, other.max_);
  }

  [[nodiscard]] std::uint64_t count() const noexcept { return count_; }

  /// The longest recorded duration, in nanoseconds; 0 if empty.
  [[nodiscard]] std::uint64_t max() const noexcept { return scaled(max_); }

  /// Calls `visit(longest, times)` for each bucket that is not empty, shortest first. `longest` is the longest duration
  /// that the bucket counts, in nanoseconds.
  template <class Visit>
  void for_each(Visit&& visit) const {
    for (std::size_t i = 0; i < bucket_count; ++i) {
      if (counts_[i] != 0) visit(scaled(std::min(upper_bound(i), max_)), counts_[i]);
    }
  }

  /// The quantile `q` (0 to 1), in nanoseconds: at least this fraction of the recorded durations is not longer. 0 if
  /// empty.
  [[nodiscard]] std::uint64_t quantile(double q) const noexcept {
    const auto rank =
        std::max<std::uint64_t>(1, static_cast<std::uint64_t>(std::ceil(q * static_cast<double>(count_))));
    std::uint64_t seen = 0;
    for (std::size_t i = 0; i < bucket_count; ++i) {
      seen += counts_[i];
      if (counts_[i] != 0 && seen >= rank) return scaled(std::min(upper_bound(i), max_));
    }
    return 0;
  }

 private:
  [[nodiscard]] std::uint64_t scaled(std::uint64_t value) const noexcept {
    return static_cast<std::uint64_t>(std::llround(static_cast<double>(value) * scale_));
  }

  std::array<std::uint64_t, bucket_count> counts_{};
  std::uint64_t count_ = 0;
  std::uint64_t max_ = 0;
  double scale_ = 1.0;
};

}  // namespace cox
