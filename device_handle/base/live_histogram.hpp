#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace cox {

/// The log-linear buckets of histograms: four for every power of two.
struct HistogramBuckets {
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
};

/// A histogram that one thread records in while other threads read it, by constructing a Histogram.
class LiveHistogram {
 public:
  /// Called by the one recording thread only.
  void record(std::uint64_t value, std::uint64_t times = 1) noexcept {
    auto& count = counts_[HistogramBuckets::bucket_of(value)];
    count.store(count.load(std::memory_order_relaxed) + times, std::memory_order_relaxed);
    if (value > max()) max_.store(value, std::memory_order_relaxed);
  }

  /// Any thread. How often a value of each bucket was recorded.
  [[nodiscard]] std::array<std::uint64_t, HistogramBuckets::bucket_count> counts() const noexcept {
    std::array<std::uint64_t, HistogramBuckets::bucket_count> copy{};
    for (std::size_t i = 0; i < copy.size(); ++i) copy[i] = counts_[i].load(std::memory_order_relaxed);
    return copy;
  }
  /// Any thread. The largest recorded value; 0 if there is none.
  [[nodiscard]] std::uint64_t max() const noexcept { return max_.load(std::memory_order_relaxed); }

 private:
  std::array<std::atomic<std::uint64_t>, HistogramBuckets::bucket_count> counts_{};
  std::atomic<std::uint64_t> max_{0};
};

}  // namespace cox
