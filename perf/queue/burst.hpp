#pragma once

#include <coxswain/perf/harness/spread.hpp>
#include <coxswain/perf/harness/suite.hpp>
#include <coxswain/perf/queue/clients.hpp>
#include <coxswain/perf/queue/lane.hpp>
#include <coxswain/perf/queue/round_trip.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

namespace cox::perf {

/// Dependent multiplications that nobody optimises away.
inline std::uint64_t compute(std::uint64_t steps) {
  std::uint64_t value = steps;
  for (std::uint64_t i = 0; i < steps; ++i) {
    value = value * 6364136223846793005u + 1442695040888963407u;
    asm volatile("" : "+r"(value));
  }
  return value;
}

/// Steps of compute() that take about `duration` on this machine.
inline std::uint64_t steps_for(std::chrono::nanoseconds duration) {
  static const double steps_per_nanosecond = [] {
    constexpr std::uint64_t steps = 2'000'000;
    const auto start = std::chrono::steady_clock::now();
    compute(steps);
    const std::chrono::duration<double, std::nano> taken = std::chrono::steady_clock::now() - start;
    return static_cast<double>(steps) / taken.count();
  }();
  return static_cast<std::uint64_t>(steps_per_nanosecond * static_cast<double>(duration.count()));
}

/// A client submits 1,000 closures of about 150 ns of work, then makes one blocking call. Microseconds that it spends
/// in its submits, and until the call returned (medians over the bursts).
template <class L>
Sample burst(unsigned bursts) {
  const auto lane = std::make_unique<L>(LaneOptions{});
  const std::uint64_t steps = steps_for(std::chrono::nanoseconds(150));
  std::vector<double> submitting, whole;
  for (unsigned i = 0; i < bursts; ++i) {
    const auto start = std::chrono::steady_clock::now();
    for (int k = 0; k < 1'000; ++k) lane->push([steps] { compute(steps); });
    const auto submitted = std::chrono::steady_clock::now();
    call(*lane, [] {});
    const auto end = std::chrono::steady_clock::now();
    submitting.push_back(std::chrono::duration<double, std::micro>(submitted - start).count());
    whole.push_back(std::chrono::duration<double, std::micro>(end - start).count());
  }
  lane->stop();
  return {quantile(submitting, 0.5), quantile(whole, 0.5)};
}

/// Four clients submit 5,000 closures of about 150 ns each, then make one blocking call each: milliseconds for all.
template <class L>
Sample four_bursts() {
  const auto lane = std::make_unique<L>(LaneOptions{});
  const std::uint64_t steps = steps_for(std::chrono::nanoseconds(150));
  std::chrono::steady_clock::time_point start;
  {
    Clients clients(4, [&](unsigned) {
      for (int k = 0; k < 5'000; ++k) lane->push([steps] { compute(steps); });
      call(*lane, [] {});
    });
    start = std::chrono::steady_clock::now();
    clients.start();
  }
  const std::chrono::duration<double, std::milli> taken = std::chrono::steady_clock::now() - start;
  lane->stop();
  return {taken.count()};
}

}  // namespace cox::perf
