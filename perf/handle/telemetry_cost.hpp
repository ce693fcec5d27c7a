#pragma once

#include <coxswain/device_handle/observe/task_trace.hpp>
#include <coxswain/device_handle/service/completion.hpp>
#include <coxswain/perf/harness/process_cost.hpp>
#include <coxswain/perf/harness/spread.hpp>
#include <coxswain/perf/harness/suite.hpp>
#include <coxswain/perf/queue/lane.hpp>
#include <coxswain/runtime/trace/trace.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

namespace cox::perf {

/// What the two sides pay for a closure, each while the other waits: nanoseconds of a push, and of the consumer from
/// one closure to the next. Medians over `bursts` of 8,192.
template <class L>
Sample cost_of_each_side(unsigned bursts) {
  using Clock = std::chrono::steady_clock;
  using Nanoseconds = std::chrono::duration<double, std::nano>;
  constexpr unsigned closures = 8'192;
  const auto lane = std::make_unique<L>(LaneOptions{.capacity = bounded_capacity});
  std::vector<double> pushing, running;
  for (unsigned burst = 0; burst < bursts; ++burst) {
    Completion entered, gate, done;
    Clock::time_point first, last;
    lane->push([&] {
      entered.signal();
      gate.wait({});
      first = Clock::now();
    });
    entered.wait({});
    const auto start = Clock::now();
    for (unsigned i = 0; i < closures; ++i) lane->push([i] { asm volatile("" ::"m"(i)); });
    pushing.push_back(Nanoseconds(Clock::now() - start).count() / closures);
    lane->push([&] {
      last = Clock::now();
      done.signal();
    });
    gate.signal();
    done.wait({});
    running.push_back(Nanoseconds(last - first).count() / closures);
  }
  lane->stop();
  return {quantile(pushing, 0.5), quantile(running, 0.5)};
}

/// CPU nanoseconds of one `call()`, in a loop of its own.
template <class Call>
double cost_of_call(Call call) {
  constexpr unsigned calls = 1'000'000;
  const auto start = own_cpu_time();
  for (unsigned i = 0; i < calls; ++i) {
    call();
    asm volatile("" ::: "memory");
  }
  return std::chrono::duration<double, std::nano>(own_cpu_time() - start).count() / calls;
}

/// CPU nanoseconds of a loop without a call, of naming the running operation, and of a span.
inline Sample cost_of_trace_calls(bool traced) {
  if (traced) trace::start();
  const Sample sample{cost_of_call([] {}), cost_of_call([] { name_operation("operation"); }),
                      cost_of_call([] { const trace::Span span("span", trace::Category::Client); })};
  if (traced) (void)trace::stop();
  return sample;
}

}  // namespace cox::perf
