#pragma once

#include <coxswain/tools/cox/bench/bench_case.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

namespace cox::bench {

/// The result of one case.
struct Measurement {
  std::string where;
  std::string what;
  std::size_t samples = 0;
  double p50 = 0;  ///< microseconds
  double p99 = 0;
  double max = 0;
  double algorithm_rate = 0;  ///< GB/s: the bytes divided by p50; 0: the case has no transfer rate
  double bus_rate = 0;        ///< GB/s, as nccl-tests count it; 0: the case is not a collective
};

/// The results of all cases of a run.
struct BenchReport {
  std::vector<std::string> devices;
  std::vector<Measurement> rows;
  double seconds = 0;
  bool interrupted = false;
};

/// Samples the case for `time`, at least five times, after two warm-up samples. Returns early once `interrupted` is
/// set. Blocks. Throws what the case throws.
[[nodiscard]] Measurement measure(const BenchCase& measured, std::chrono::nanoseconds time,
                                  const std::atomic<bool>& interrupted);

/// The report as a table of several lines.
[[nodiscard]] std::string table(const BenchReport& report);

/// {"seconds":s,"interrupted":bool,"devices":[...],"rows":[{"where","what","samples","p50_us","p99_us","max_us",
/// "algbw_gb_s","busbw_gb_s"}]}; rates that are 0 are left out.
[[nodiscard]] std::string json(const BenchReport& report);

}  // namespace cox::bench
