#pragma once

#include <coxswain/device_handle/service/completion.hpp>
#include <coxswain/perf/harness/spread.hpp>
#include <coxswain/perf/harness/suite.hpp>
#include <coxswain/perf/queue/clients.hpp>
#include <coxswain/perf/queue/lane.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace cox::perf {

/// Runs `f` on the lane's consumer and returns when it ran: the lane's own blocking call if it has one, else a push and
/// a wait that spins 20 us, then parks.
template <class L, class F>
void call(L& lane, F f) {
  if constexpr (requires { lane.call(f); }) {
    lane.call(f);
  } else {
    Completion done;
    lane.push([&] {
      f();
      done.signal();
    });
    done.wait(std::chrono::microseconds(20));
  }
}

/// Blocking calls, one after the other, by `clients` threads: p50 and p99 in microseconds.
template <class L>
Sample round_trips(unsigned clients, std::uint64_t calls) {
  const auto lane = std::make_unique<L>(LaneOptions{});
  std::vector<std::vector<double>> taken(clients);
  std::uint64_t state = 0;
  {
    Clients threads(clients, [&](unsigned index) {
      auto& mine = taken[index];
      mine.reserve(calls);
      for (std::uint64_t i = 0; i < calls; ++i) {
        const auto start = std::chrono::steady_clock::now();
        call(*lane, [&state] { ++state; });
        mine.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count());
      }
    });
  }
  lane->stop();
  std::vector<double> all;
  for (const auto& one : taken) all.insert(all.end(), one.begin(), one.end());
  const double median = quantile(all, 0.5);
  return {median, quantile(all, 0.99)};
}

}  // namespace cox::perf
