#pragma once

#include <coxswain/perf/harness/suite.hpp>
#include <coxswain/perf/queue/burst.hpp>
#include <coxswain/perf/queue/hand_off.hpp>
#include <coxswain/perf/queue/lane.hpp>
#include <coxswain/perf/queue/round_trip.hpp>
#include <coxswain/perf/queue/throughput.hpp>

#include <climits>
#include <string>
#include <tuple>
#include <utility>

namespace cox::perf {

/// A lane under the name it has in tables.
template <class L>
struct Named {
  using Lane = L;
  std::string name;
  std::string note = "";
};

template <class L>
constexpr unsigned max_producers() {
  if constexpr (requires { L::most_producers; }) return L::most_producers;
  return UINT_MAX;
}

/// The cases that any lane can run, over the lanes `named`. `quick` asks for a tenth of the work.
template <class... L>
class LaneCases {
 public:
  LaneCases(Suite& suite, bool quick, Named<L>... named) : suite_(suite), quick_(quick), named_(std::move(named)...) {}

  template <std::size_t Bytes>
  void add_throughput(const std::string& figure, std::size_t capacity) {
    for (const unsigned producers : {1u, 2u, 4u, 8u}) {
      const Load load{.producers = producers, .closures = quick_ ? 200'000u : 2'000'000u, .capacity = capacity};
      Case added{.figure = figure,
                 .name = title(Bytes, load),
                 .metrics = {{"", "ns per closure"}, {"push", "CPU ns per push"}},
                 .contenders = {}};
      for_each([&]<class Lane>(const Named<Lane>& lane) {
        if (producers > max_producers<Lane>()) return;
        added.contenders.push_back({lane.name, [load] { return throughput<Lane, Bytes>(load); }, lane.note});
      });
      suite_.add(std::move(added));
    }
  }

  template <std::size_t Bytes>
  void add_memory(const std::string& figure, std::size_t capacity) {
    const Load load{.producers = 4, .closures = quick_ ? 200'000u : 2'000'000u, .capacity = capacity};
    Case added{.figure = figure,
               .name = "memory, " + title(Bytes, load),
               .metrics = {{"", "MiB of growth"}},
               .contenders = {},
               .fresh_process = true};
    for_each([&]<class Lane>(const Named<Lane>& lane) {
      if (load.producers > max_producers<Lane>()) return;
      added.contenders.push_back({lane.name, [load] { return memory_growth<Lane, Bytes>(load); }, lane.note});
    });
    suite_.add(std::move(added));
  }

  void add_hand_off() {
    const std::uint64_t hand_offs = quick_ ? 100'000 : 1'000'000;
    Case added{
        .figure = "L1", .name = "hand-off between two producers", .metrics = {{"", "inversions"}}, .contenders = {}};
    for_each([&]<class Lane>(const Named<Lane>& lane) {
      if (2 > max_producers<Lane>()) return;
      added.contenders.push_back({lane.name, [hand_offs] { return inversions<Lane>(hand_offs); }});
    });
    suite_.add(std::move(added));
  }

  void add_round_trips(const std::string& figure) {
    for (const unsigned clients : {1u, 4u}) {
      const std::uint64_t calls = quick_ ? 5'000 : 50'000;
      Case added{.figure = figure,
                 .name = "blocking call, hot, " + std::to_string(clients) + " clients",
                 .metrics = {{"p50", "us"}, {"p99", "us"}},
                 .contenders = {}};
      for_each([&]<class Lane>(const Named<Lane>& lane) {
        if (clients > max_producers<Lane>()) return;
        added.contenders.push_back({lane.name, [=] { return round_trips<Lane>(clients, calls); }});
      });
      suite_.add(std::move(added));
    }
  }

  void add_bursts() {
    const unsigned bursts = quick_ ? 20 : 200;
    Case one{.figure = "burst",
             .name = "1,000 submits of 150 ns, then a blocking call",
             .metrics = {{"client time in its submits", "us"}, {"until the call returned", "us"}},
             .contenders = {}};
    Case four{
        .figure = "burst", .name = "4 clients x 5,000 submits of 150 ns", .metrics = {{"", "ms"}}, .contenders = {}};
    for_each([&]<class Lane>(const Named<Lane>& lane) {
      one.contenders.push_back({lane.name, [bursts] { return burst<Lane>(bursts); }, lane.note});
      if (4 > max_producers<Lane>()) return;
      four.contenders.push_back({lane.name, [] { return four_bursts<Lane>(); }, lane.note});
    });
    suite_.add(std::move(one));
    suite_.add(std::move(four));
  }

 private:
  static std::string title(std::size_t bytes, const Load& load) {
    return std::to_string(bytes) + " B, " + std::to_string(load.producers) +
           (load.producers == 1 ? " producer" : " producers") + (load.capacity == 0 ? ", growing" : ", bounded");
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
