#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace cox {

/// Counts of durations in log-linear buckets: four buckets for every power of two, so a quantile is at most 25 % too
/// high. A plain value; not thread-safe.
class Histogram {
 public:
  static constexpr std::size_t bucket_count = 252;

  /// The bucket that counts `value`. Monotonic; values below 4 have a bucket each.
  [[nodiscard]] static constexpr std::size_t bucket_of(std::uint64_t value) noexcept {
    if (value < 4) return static_cast<std::size_t>(value);
    const auto exponent = static_cast<std::size_t>(std::bit_width(value) - 1);
    return (exponent - 1) * 4 + static_cast<std::size_t>((value >> (exponent - 2)) & 3U);
  }

  /// The largest value counted in `bucket`.
  [[nodiscard]] static constexpr std::uint64_t upper_bound(std::size_t bucket) noexcept {
    if (bucket < 4) return bucket;
    const std::size_t exponent = bucket / 4 + 1;
    const std::uint64_t step = std::uint64_t{1} << (exponent - 2);
    return (std::uint64_t{4} + bucket % 4) * step + (step - 1);
  }

  Histogram() = default;

  /// A histogram in which one unit of a recorded value is `nanoseconds_per_unit`.
  explicit Histogram(double nanoseconds_per_unit) : scale_(nanoseconds_per_unit) {}

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
  friend class LiveHistogram;

  [[nodiscard]] std::uint64_t scaled(std::uint64_t value) const noexcept {
    return static_cast<std::uint64_t>(std::llround(static_cast<double>(value) * scale_));
  }

  std::array<std::uint64_t, bucket_count> counts_{};
  std::uint64_t count_ = 0;
  std::uint64_t max_ = 0;
  double scale_ = 1.0;
};

/// A histogram that one thread records in while other threads take snapshots.
class LiveHistogram {
 public:
  /// Called by the one recording thread only.
  void record(std::uint64_t value, std::uint64_t times = 1) noexcept {
    auto& count = counts_[Histogram::bucket_of(value)];
    count.store(count.load(std::memory_order_relaxed) + times, std::memory_order_relaxed);
    if (value > max_.load(std::memory_order_relaxed)) max_.store(value, std::memory_order_relaxed);
  }

  /// Any thread. Each count is exact; their sum may lag behind the recording thread.
  [[nodiscard]] Histogram snapshot(double nanoseconds_per_unit) const noexcept {
    Histogram copy(nanoseconds_per_unit);
    for (std::size_t i = 0; i < Histogram::bucket_count; ++i) {
      copy.counts_[i] = counts_[i].load(std::memory_order_relaxed);
      copy.count_ += copy.counts_[i];
    }
    copy.max_ = max_.load(std::memory_order_relaxed);
    return copy;
  }

 private:
  std::array<std::atomic<std::uint64_t>, Histogram::bucket_count> counts_{};
  std::atomic<std::uint64_t> max_{0};
};

}  // namespace cox
