// Overlapping communicators, submissions in any order: the devices must finish. LaunchModel says whether they do.

#include <coxswain/tests/collectives/launch_model.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/collectives/sequencer.hpp>

#include <rapidcheck.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <latch>
#include <map>
#include <random>
#include <thread>
#include <utility>
#include <vector>

using namespace cox;
using cox::test::LaunchModel;

namespace {

/// A rank of a communicator that has operations to submit.
struct Rank {
  std::size_t communicator;
  std::size_t rank;
};

/// A random set of communicators and, per rank, as many operations as every other rank of it has.
struct Program {
  std::vector<CommunicationId> communicators;
  std::vector<Rank> submissions;  // in the order in which one thread makes them
};

Program random_program(std::mt19937_64& random, std::size_t devices, std::size_t communicators, int operations) {
  Program program;
  std::vector<DeviceId> all;
  for (std::size_t d = 0; d < devices; ++d) all.push_back({.type = 0, .index = static_cast<std::uint16_t>(d)});
  for (std::size_t c = 0; c < communicators; ++c) {
    std::ranges::shuffle(all, random);
    const std::size_t size = 2 + random() % (devices - 1);
    program.communicators.emplace_back(std::span(all).first(size));
    for (std::size_t rank = 0; rank < size; ++rank)
      program.submissions.insert(program.submissions.end(), static_cast<std::size_t>(operations), Rank{c, rank});
  }
  std::ranges::shuffle(program.submissions, random);
  return program;
}

/// What the sequencer releases to a model of the devices.
class Run {
 public:
  Run(const Program& program, std::size_t devices)
      : program_(program), model_(devices), orders_(devices), answered_(program.communicators.size()) {
    for (const CommunicationId& devices_of : program.communicators)
      numbers_.push_back(sequencer_.open(devices_of, std::chrono::hours(1)));
  }

  void submit(const Rank& rank, std::size_t count = 1) {
    ++submitted_;
    const DeviceId device = program_.communicators[rank.communicator].devices()[rank.rank];
    sequencer_.submit(numbers_[rank.communicator], rank.rank,
                      {.requests = {{.count = count}},
                       .launch = [this, device, communicator = rank.communicator](const LaunchTurn& turn) {
                         ++answered_[communicator];
                         if (turn.refusal) return;
                         // No lock: the sequencer promises one launch at a time on one device.
                         model_.launch(device, {communicator, turn.sequence});
                         orders_[device.index].push_back(turn.order);
                       }});
  }
  void abort(std::size_t communicator) { sequencer_.abort(numbers_[communicator], nullptr); }
  void close() {
    for (const CommunicatorNumber number : numbers_) sequencer_.close(number);
  }

  [[nodiscard]] std::size_t launched() const {
    std::size_t launched = 0;
    for (const auto& orders : orders_) launched += orders.size();
    return launched;
  }
  [[nodiscard]] std::size_t submitted() const { return submitted_; }
  [[nodiscard]] std::size_t answered() const {
    std::size_t answered = 0;
    for (const auto& count : answered_) answered += count;
    return answered;
  }
  /// On every device the launches came in the one order, and the devices finish.
  [[nodiscard]] bool in_order() const {
    return std::ranges::all_of(orders_, [](const auto& orders) {
      return std::ranges::adjacent_find(orders, std::ranges::greater_equal()) == orders.end();
    });
  }
  [[nodiscard]] std::size_t stuck() const { return model_.stuck(program_.communicators); }

 private:
  const Program& program_;
  LaunchModel model_;
  std::vector<std::vector<std::uint64_t>> orders_;
  std::vector<std::atomic<std::size_t>> answered_;
  std::atomic<std::size_t> submitted_{0};
  std::vector<CommunicatorNumber> numbers_;
  Sequencer sequencer_{{.max_ahead = 1U << 20U, .recorded_operations = 4}};
};

/// Every device launches what its ranks submit at once: what the sequencer is there to prevent.
std::size_t stuck_without_sequencer(const Program& program, std::size_t devices) {
  LaunchModel model(devices);
  std::map<std::pair<std::size_t, std::size_t>, std::uint64_t> next;
  for (const Rank& rank : program.submissions)
    model.launch(program.communicators[rank.communicator].devices()[rank.rank],
                 {rank.communicator, ++next[{rank.communicator, rank.rank}]});
  return model.stuck(program.communicators);
}

}  // namespace

TEST_CASE("L10: no order of submissions on overlapping communicators deadlocks the devices") {
  int deadlocks_without = 0;
  REQUIRE(rc::check([&](std::uint64_t seed) {
    std::mt19937_64 random(seed);
    const std::size_t devices = 2 + random() % 7;
    const Program program = random_program(random, devices, 1 + random() % 8, 1 + static_cast<int>(random() % 8));
    Run run(program, devices);
    for (const Rank& rank : program.submissions) run.submit(rank);
    RC_ASSERT(run.launched() == program.submissions.size());
    RC_ASSERT(run.answered() == program.submissions.size());
    RC_ASSERT(run.in_order());
    RC_ASSERT(run.stuck() == 0U);
    if (stuck_without_sequencer(program, devices) > 0) ++deadlocks_without;
  }));
  CHECK(deadlocks_without > 10);  // The model sees a deadlock where there is one.
}

TEST_CASE("L2: mismatches and aborts in between leave complete operations, each launch answered once") {
  REQUIRE(rc::check([](std::uint64_t seed) {
    std::mt19937_64 random(seed);
    const std::size_t devices = 2 + random() % 7;
    const Program program = random_program(random, devices, 1 + random() % 8, 1 + static_cast<int>(random() % 8));
    Run run(program, devices);
    for (const Rank& rank : program.submissions) {
      run.submit(rank, random() % 16 == 0 ? 2 : 1);
      if (random() % 32 == 0) run.abort(random() % program.communicators.size());
    }
    run.close();
    RC_ASSERT(run.answered() == run.submitted());
    RC_ASSERT(run.in_order());
    RC_ASSERT(run.stuck() == 0U);
  }));
}

TEST_CASE("L10: eight threads that submit in any order do not deadlock the devices") {
  constexpr std::size_t threads = 8;
  constexpr std::size_t devices = 4;
  const bool disturbed = GENERATE(false, true);
  std::mt19937_64 random(GENERATE(range(1U, 5U)));
  const Program program = random_program(random, devices, 6, 200);
  Run run(program, devices);
  std::latch start(threads);
  std::vector<std::jthread> clients;
  for (std::size_t thread = 0; thread < threads; ++thread)
    clients.emplace_back([&, thread] {
      start.arrive_and_wait();
      std::size_t mine = 0;
      for (const Rank& rank : program.submissions) {
        // All of one rank is one thread's: in the order of its submissions.
        if ((rank.communicator * devices + rank.rank) % threads != thread) continue;
        run.submit(rank);
        if (disturbed && thread == 0 && ++mine % 16 == 0) run.abort(mine / 16 % 6);
      }
    });
  clients.clear();
  if (disturbed)
    run.close();
  else
    CHECK(run.launched() == program.submissions.size());
  CHECK(run.answered() == program.submissions.size());
  CHECK(run.in_order());
  CHECK(run.stuck() == 0);
}
