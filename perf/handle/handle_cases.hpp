#pragma once

#include <coxswain/perf/handle/after_idle.hpp>
#include <coxswain/perf/handle/idle_cost.hpp>
#include <coxswain/perf/handle/steady_state.hpp>
#include <coxswain/perf/handle/telemetry_cost.hpp>
#include <coxswain/perf/harness/suite.hpp>
#include <coxswain/perf/queue/cases.hpp>

#include <chrono>
#include <string>
#include <tuple>
#include <utility>

namespace cox::perf {

/// Figures F4 to F6 and F17 over the lanes `named`; the smaller cases of perf_queue do the rest.
template <class... L>
class HandleCases {
 public:
  HandleCases(Suite& suite, bool quick, Named<L>... named)
      : suite_(suite), quick_(quick), named_(std::move(named)...) {}

  void add_after_idle() {
    const unsigned calls = quick_ ? 20 : 100;
    Case blocking{
        .figure = "F4",
        .name = "blocking call after 10 ms idle",
        .metrics = {{"p50", "us"}, {"p90", "us"}},
        .contenders = {{"bare_futex", [calls] { return futex_after_idle(calls); }, "wake, wait for the answer"}},
        .max_rounds = 5};
    Case lone{.figure = "F4",
              .name = "lone submit after 10 ms idle, client computes",
              .metrics = {{"p50", "us"}, {"p90", "us"}, {"in submit, p50", "us"}},
              .contenders = {},
              .max_rounds = 5};
    for_each([&]<class Lane>(const Named<Lane>& lane) {
      blocking.contenders.push_back({lane.name, [calls] { return blocking_after_idle<Lane>(calls); }});
      lone.contenders.push_back({lane.name, [calls] { return lone_submit_after_idle<Lane>(calls); }});
    });
    suite_.add(std::move(blocking));
    suite_.add(std::move(lone));
  }

  void add_telemetry() {
    const unsigned bursts = quick_ ? 20 : 100;
    Case sides{.figure = "F17",
               .name = "each side while the other waits",
               .metrics = {{"submit", "ns"}, {"device thread", "ns per task"}},
               .contenders = {}};
    for_each([&]<class Lane>(const Named<Lane>& lane) {
      sides.contenders.push_back({lane.name, [bursts] { return cost_of_each_side<Lane>(bursts); }, lane.note});
    });
    suite_.add(std::move(sides));
    suite_.add({.figure = "F17",
                .name = "a call for the trace",
                .metrics = {{"empty loop", "CPU ns"}, {"name_operation", "CPU ns"}, {"span", "CPU ns"}},
                .contenders = {{"off", [] { return cost_of_trace_calls(false); }},
                               {"on", [] { return cost_of_trace_calls(true); }}}});
  }

  void add_idle_cost() {
    const std::chrono::seconds watched(quick_ ? 1 : 5);
    Case idle{.figure = "F5",
              .name = "idle consumer",
              .metrics = {{"CPU", "% of a core"}, {"context switches", "per second"}},
              .contenders = {},
              .max_rounds = 2};
    for_each([&]<class Lane>(const Named<Lane>& lane) {
      idle.contenders.push_back({lane.name, [watched] { return idle_cost<Lane>(watched); }});
    });
    suite_.add(std::move(idle));
  }

  void add_allocations() {
    for (const unsigned outstanding : {50u, 1'000u}) {
      add_allocations_of<8>(outstanding);
      add_allocations_of<40>(outstanding);
      add_allocations_of<128>(outstanding);
      add_allocations_of<512>(outstanding);
      add_allocations_of<1024>(outstanding);
      add_allocations_of<4096>(outstanding);
    }
  }

  void add_memory_at_rest() {
    for (const std::size_t capacity : {bounded_capacity, std::size_t{0}}) {
      Case rest{.figure = "F6",
                .name = std::string("at rest after 1,000,000 closures") + (capacity == 0 ? ", growing" : ", bounded"),
                .metrics = {{"growth of the process", "KiB"}, {"its own figure", "KiB"}},
                .contenders = {},
                .fresh_process = true,
                .max_rounds = 3};
      for_each([&]<class Lane>(const Named<Lane>& lane) {
        rest.contenders.push_back({lane.name, [capacity] { return memory_at_rest<Lane>(capacity); }, lane.note});
      });
      suite_.add(std::move(rest));
    }
  }

 private:
  template <std::size_t Bytes>
  void add_allocations_of(unsigned outstanding) {
    Case added{.figure = "F6",
               .name = std::to_string(Bytes) + " B, " + std::to_string(outstanding) + " outstanding",
               .metrics = {{"", "allocations per submit"}},
               .contenders = {},
               .max_rounds = 2};
    for_each([&]<class Lane>(const Named<Lane>& lane) {
      added.contenders.push_back(
          {lane.name, [outstanding] { return allocations_per_submit<Lane, Bytes>(outstanding); }});
    });
    suite_.add(std::move(added));
  }

  template <class Visit>
  void for_each(Visit visit) {
    std::apply([&](const auto&... named) { (visit(named), ...); }, named_);
  }

  Suite& suite_;
  const bool quick_;
  std::tuple<Named<L>...> named_;
};

}  // namespace cox::perf
