#pragma once

#include <coxswain/perf/harness/process_cost.hpp>
#include <coxswain/perf/harness/suite.hpp>
#include <coxswain/perf/queue/lane.hpp>
#include <coxswain/perf/queue/round_trip.hpp>

#include <chrono>
#include <memory>
#include <thread>

namespace cox::perf {

/// What all threads but the client cost while nothing happens, once they had a call and settled: per cent of one core,
/// and context switches a second.
template <class L>
Sample idle_cost(std::chrono::seconds watched) {
  const auto lane = std::make_unique<L>(LaneOptions{});
  call(*lane, [] {});
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  const ThreadCost before = cost_of_other_threads();
  std::this_thread::sleep_for(watched);
  const ThreadCost cost = cost_of_other_threads() - before;
  lane->stop();
  const auto seconds = static_cast<double>(watched.count());
  const double cpu = std::chrono::duration<double>(cost.cpu).count();
  return {100.0 * cpu / seconds, static_cast<double>(cost.voluntary_switches + cost.involuntary_switches) / seconds};
}

}  // namespace cox::perf
