#pragma once

#include <coxswain/perf/handle/bare_futex.hpp>
#include <coxswain/perf/harness/spread.hpp>
#include <coxswain/perf/harness/suite.hpp>
#include <coxswain/perf/queue/burst.hpp>
#include <coxswain/perf/queue/lane.hpp>
#include <coxswain/perf/queue/round_trip.hpp>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

namespace cox::perf {

inline constexpr std::chrono::milliseconds idle_time{10};

/// `call()` after 10 ms in which nothing happened: p50 and p90 in microseconds.
template <class Call>
Sample calls_after_idle(unsigned calls, Call call) {
  std::vector<double> taken;
  for (unsigned i = 0; i < calls; ++i) {
    std::this_thread::sleep_for(idle_time);
    const auto start = std::chrono::steady_clock::now();
    call();
    taken.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count());
  }
  const double median = quantile(taken, 0.5);
  return {median, quantile(taken, 0.9)};
}

template <class L>
Sample blocking_after_idle(unsigned calls) {
  const auto lane = std::make_unique<L>(LaneOptions{});
  Sample sample = calls_after_idle(calls, [&] { call(*lane, [] {}); });
  lane->stop();
  return sample;
}

inline Sample futex_after_idle(unsigned calls) {
  BareFutex futex;
  return calls_after_idle(calls, [&] { futex.round_trip(); });
}

/// One submit after 10 ms of nothing, after which the client computes without a pause. p50 and p90 of the time from the
/// call of submit until the closure runs, and p50 of the time in submit itself, in microseconds.
template <class L>
Sample lone_submit_after_idle(unsigned submits) {
  using Clock = std::chrono::steady_clock;
  const auto lane = std::make_unique<L>(LaneOptions{});
  std::vector<double> until_run, in_submit;
  for (unsigned i = 0; i < submits; ++i) {
    std::this_thread::sleep_for(idle_time);
    Clock::time_point ran;
    std::atomic<bool> done{false};
    const auto start = Clock::now();
    lane->push([&ran, &done] {
      ran = Clock::now();
      done.store(true, std::memory_order_release);
    });
    const auto submitted = Clock::now();
    while (!done.load(std::memory_order_acquire)) compute(100);
    until_run.push_back(std::chrono::duration<double, std::micro>(ran - start).count());
    in_submit.push_back(std::chrono::duration<double, std::micro>(submitted - start).count());
  }
  lane->stop();
  const double median = quantile(until_run, 0.5);
  return {median, quantile(until_run, 0.9), quantile(in_submit, 0.5)};
}

}  // namespace cox::perf
