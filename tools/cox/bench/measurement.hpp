#pragma once

#include <coxswain/tools/cox/bench/bench_case.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

namespace cox::bench {

/// What a case took.
struct Measurement {
  std::string where;
  std::string what;
  std::size_t samples = 0;
  double p50 = 0;  ///< microseconds
  double p99 = 0;
  double max = 0;
  double algorithm_rate = 0;  ///< GB/s: the bytes over p50; 0: the case is not about that
  double bus_rate = 0;        ///< GB/s, as nccl-tests count it; 0: no collective
};

/// What all of them took.
struct BenchReport {
  std::vector<std::string> devices;
  std::vector<Measurement> rows;
  double seconds = 0;
  bool interrupted = false;
};

/// Samples the case for `time`, at least five times after two that warm up; ends early once `interrupted`. Blocks.
/// Throws what the case throws.
[[nodiscard]] Measurement measure(const BenchCase& measured, std::chrono::nanoseconds time,
                                  const std::atomic<bool>& interrupted);

/// Several lines.
[[nodiscard]] std::string table(const BenchReport& report);

/// {"seconds":s,"interrupted":bool,"devices":[...],"rows":[{"where","what","samples","p50_us","p99_us","max_us",
/// "algbw_gb_s","busbw_gb_s"}]}; the rates where there are any.
[[nodiscard]] std::string json(const BenchReport& report);

}  // namespace cox::bench
