#pragma once

#include <coxswain/perf/harness/spread.hpp>
#include <coxswain/perf/harness/stopwatch.hpp>
#include <coxswain/perf/harness/suite.hpp>

#include <cstddef>
#include <string>
#include <type_traits>
#include <vector>

namespace cox::perf {

/// "64 MiB".
[[nodiscard]] inline std::string size_name(std::size_t bytes) {
  if (bytes >= (std::size_t{1} << 30U)) return std::to_string(bytes >> 30U) + " GiB";
  return bytes >= (1U << 20U) ? std::to_string(bytes >> 20U) + " MiB" : std::to_string(bytes >> 10U) + " KiB";
}

/// What copy_rate gives.
[[nodiscard]] inline std::vector<Metric> copy_metrics() { return {{"time", "us"}, {"rate", "GB/s", true}}; }

/// How often copies of that size are worth being repeated for one sample.
[[nodiscard]] inline std::size_t repetitions(std::size_t bytes, bool quick) {
  const std::size_t whole = bytes >= (std::size_t{1} << 30U) ? 5 : bytes >= (32U << 20U) ? 15 : 300;
  return quick ? whole / 3 : whole;
}

/// Median of the time of a copy and the rate that it means. `copy()` returns what is to be given back behind the clock,
/// such as the bytes that were downloaded, or nothing.
template <class Copy>
Sample copy_rate(std::size_t bytes, std::size_t count, Copy copy) {
  std::vector<double> taken;
  const auto one = [&] {
    const Stopwatch watch;
    if constexpr (std::is_void_v<decltype(copy())>) {
      copy();
      return watch.microseconds();
    } else {
      const auto kept = copy();
      return watch.microseconds();
    }
  };
  static_cast<void>(one());
  for (std::size_t i = 0; i < count; ++i) taken.push_back(one());
  const double median = quantile(taken, 0.5);
  return {median, static_cast<double>(bytes) / median / 1e3};
}

}  // namespace cox::perf
