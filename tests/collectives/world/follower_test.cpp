#include <coxswain/tests/collectives/launch_of.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/collectives/leader/follower.hpp>
#include <coxswain/collectives/leader/leader.hpp>
#include <coxswain/collectives/sequencer/sequencer.hpp>
#include <coxswain/runtime/communication/collective_error.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <source_location>
#include <span>
#include <string>
#include <utility>
#include <vector>

using namespace cox;
using namespace std::chrono_literals;
using namespace cox::detail::world;

namespace {

constexpr std::size_t devices_of_each = 2;

/// An operation of a communicator. The same in all processes.
using Name = std::pair<std::size_t, std::uint64_t>;  // group, number

/// The processes of a world with their sequencers, in one thread. Messages are delivered when the test says so.
struct TestWorld {
  struct Process {
    std::uint16_t number;
    std::deque<Message> to_leader;
    std::deque<Message> from_leader;
    std::vector<std::size_t> sends;                                          // the number of messages of each
    std::map<std::size_t, CommunicatorNumber> communicators;                 // by group
    std::map<std::pair<std::size_t, std::size_t>, std::uint64_t> submitted;  // by group and rank
    std::vector<Name> launched;                                              // in order
    std::map<std::pair<Name, std::size_t>, std::size_t> answers;             // by operation and rank
    std::map<Name, std::set<std::size_t>> granted;                           // ranks
    std::map<Name, std::set<CollectiveError::Kind>> refused;

    Sequencer sequencer;  // at its end it answers all submissions
    Follower follower;

    Process(std::uint16_t its, std::size_t count)
        : number(its),
          sequencer({.max_ahead = 64}),
          follower(
              sequencer,
              [this](std::span<Message> messages) {
                sends.push_back(messages.size());
                for (Message& message : messages) to_leader.push_back(std::move(message));
              },
              [] { FAIL("no memory"); }) {
      std::vector<DeviceId> devices;
      for (const ProcessFacts& facts : facts_of(count))
        devices.insert(devices.end(), facts.devices.begin(), facts.devices.end());
      sequencer.join_world(static_cast<std::uint16_t>(its + 1), std::move(devices), follower, 8);
    }
  };

  std::vector<CommunicationId> groups;
  std::vector<std::unique_ptr<Process>> processes;
  Leader leader;
  std::set<std::uint16_t> gone;
  Leader::Time now{};

  explicit TestWorld(std::size_t count) : leader(facts_of(count), {.max_ahead = 8}) {
    for (std::size_t process = 0; process < count; ++process)
      processes.push_back(std::make_unique<Process>(static_cast<std::uint16_t>(process), count));
  }

  static std::vector<ProcessFacts> facts_of(std::size_t count) {
    std::vector<ProcessFacts> facts(count);
    for (std::size_t process = 0; process < count; ++process) {
      facts[process].host = "here";
      for (std::size_t index = 0; index < devices_of_each; ++index)
        facts[process].devices.push_back(device(process, index));
    }
    return facts;
  }
  static DeviceId device(std::size_t process, std::size_t index) {
    return {.type = 0, .index = static_cast<std::uint16_t>(index), .process = static_cast<std::uint16_t>(process + 1)};
  }

  [[nodiscard]] std::size_t process_of(std::size_t group, std::size_t rank) const {
    return groups[group].devices()[rank].process - 1U;
  }
  /// The rank submits its next operation on the group.
  void submit(std::size_t group, std::size_t rank, const std::vector<Name>& after = {}) {
    Process& process = *processes[process_of(group, rank)];
    auto found = process.communicators.find(group);
    if (found == process.communicators.end())
      found = process.communicators.emplace(group, process.sequencer.open(groups[group], 1h)).first;
    CollectiveSubmission submission;
    const std::uint64_t operation = ++process.submitted[{group, rank}];
    submission.requests = {{.count = static_cast<std::size_t>(operation)}};
    for (const Name& each : after)
      submission.dependencies.push_back({process.communicators.at(each.first), each.second});
    submission.launch = test::launch_of([&process, group, rank, operation](const LaunchGrant& grant) {
      const Name name{group, operation};
      ++process.answers[{name, rank}];
      if (grant.refusal) {
        try {
          std::rethrow_exception(grant.refusal);
        } catch (const CollectiveError& error) {
          process.refused[name].insert(error.kind());
        }
        return;
      }
      if (process.granted[name].empty()) process.launched.push_back(name);
      process.granted[name].insert(rank);
      process.sequencer.note_completed(process.communicators.at(group), rank, operation);
    });
    CHECK(process.sequencer.submit(found->second, rank, std::move(submission)) == operation);
  }
  /// Delivers a message to the leader, or from it. Returns false if there is none.
  bool deliver(std::size_t process, bool to_leader) {
    Process& its = *processes[process];
    std::deque<Message>& from = to_leader ? its.to_leader : its.from_leader;
    if (from.empty()) return false;
    Message message = std::move(from.front());
    from.pop_front();
    if (!to_leader) {
      CHECK(its.follower.handle(message));
      return true;
    }
    const Leader::Fault fault = leader.receive(its.number, std::move(message), now);
    INFO(fault.value_or(""));
    CHECK_FALSE(fault.has_value());
    take_outgoing();
    return true;
  }
  void take_outgoing() {
    std::vector<Outgoing> outgoing;
    leader.take_outgoing(outgoing);
    for (Outgoing& each : outgoing) processes[each.process]->from_leader.push_back(std::move(each.message));
  }
  void deliver_all() {
    for (bool delivered = true; delivered;) {
      delivered = false;
      for (std::size_t process = 0; process < processes.size(); ++process)
        delivered = deliver(process, true) || deliver(process, false) || delivered;
      if (delivered) continue;
      for (const auto& process : processes) process->sequencer.report_completed();
      for (const auto& process : processes) delivered = delivered || !process->to_leader.empty();
    }
  }
  void lose(std::uint16_t process) {
    gone.insert(process);
    processes[process]->to_leader.clear();
    processes[process]->from_leader.clear();
    leader.gone(process, CollectiveError::Kind::ProcessGone, "it has ended");
    take_outgoing();
  }
  /// Whether two processes have launched two operations in different orders.
  [[nodiscard]] bool orders_differ() const {
    for (const auto& a : processes)
      for (const auto& b : processes) {
        std::vector<Name> common;
        std::ranges::copy_if(a->launched, std::back_inserter(common),
                             [&](const Name& name) { return is_shared(name) && b->granted.contains(name); });
        std::vector<Name> others;
        std::ranges::copy_if(b->launched, std::back_inserter(others),
                             [&](const Name& name) { return is_shared(name) && a->granted.contains(name); });
        if (common != others) return true;
      }
    return false;
  }
  [[nodiscard]] bool is_shared(const Name& name) const { return groups[name.first].spans_processes(); }
  /// Whether a process that lives has launched an operation that another one that lives has refused.
  [[nodiscard]] bool is_split() const {
    for (const auto& a : processes)
      for (const auto& [name, ranks] : a->granted)
        for (const auto& b : processes)
          if (is_shared(name) && !gone.contains(a->number) && !gone.contains(b->number) && b->refused.contains(name))
            return true;
    return false;
  }
};

/// A random program of the ranks of a world: each rank submits the same operations of a group, in its own order of
/// groups.
struct RandomRun {
  std::mt19937_64 random;
  TestWorld world;
  std::vector<std::vector<std::pair<std::size_t, std::size_t>>> programs;  // of each device: group and rank, in order
  std::vector<std::size_t> next;
  std::size_t refused_submissions = 0;

  RandomRun(std::uint64_t seed, std::size_t processes) : random(seed), world(processes) {
    for (std::size_t group = 0; group < 4; ++group) {
      std::vector<DeviceId> chosen;
      while (chosen.size() < 2) {
        chosen.clear();
        for (std::size_t process = 0; process < processes; ++process)
          for (std::size_t index = 0; index < devices_of_each; ++index)
            if (below(2) == 0) chosen.push_back(TestWorld::device(process, index));
        const bool is_of_one_process =
            std::ranges::all_of(chosen, [&](DeviceId device) { return device.process == chosen.front().process; });
        if (is_of_one_process || std::ranges::find(world.groups, CommunicationId(chosen)) != world.groups.end())
          chosen.clear();
      }
      world.groups.emplace_back(chosen);
    }
    programs.resize(processes * devices_of_each);
    next.resize(programs.size());
    // One order for all: with waits between operations, no cycle.
    for (int operation = 0; operation < 24; ++operation) {
      const std::size_t group = below(world.groups.size());
      const auto devices = world.groups[group].devices();
      for (std::size_t rank = 0; rank < devices.size(); ++rank)
        programs[(devices[rank].process - 1U) * devices_of_each + devices[rank].index].emplace_back(group, rank);
    }
  }
  std::size_t below(std::size_t bound) { return static_cast<std::size_t>(random() % bound); }

  /// A device submits its next operation; half of them wait for the device's last one.
  bool submit(std::size_t device) {
    if (next[device] == programs[device].size()) return false;
    if (world.gone.contains(static_cast<std::uint16_t>(device / devices_of_each))) return false;
    const auto [group, rank] = programs[device][next[device]];
    std::vector<Name> after;
    if (next[device] != 0 && below(2) == 0) {
      const auto [other, its] = programs[device][next[device] - 1];
      after.emplace_back(other, world.processes[device / devices_of_each]->submitted[{other, its}]);
    }
    ++next[device];
    world.submit(group, rank, after);
    return true;
  }
  bool step() {
    const std::size_t process = below(world.processes.size());
    switch (below(3)) {
      case 0: return submit(process * devices_of_each + below(devices_of_each));
      case 1: return world.deliver(process, true);
      default: return world.deliver(process, false);
    }
  }
  void finish() {
    for (std::size_t device = 0; device < programs.size(); ++device)
      while (submit(device)) {
      }
    world.deliver_all();
  }
  [[nodiscard]] std::size_t unanswered() const {
    std::size_t count = 0;
    for (std::size_t device = 0; device < programs.size(); ++device) {
      const auto& process = *world.processes[device / devices_of_each];
      if (world.gone.contains(process.number)) continue;
      std::map<std::size_t, std::uint64_t> operations;
      for (std::size_t at = 0; at < next[device]; ++at) {
        const auto [group, rank] = programs[device][at];
        const auto found = process.answers.find({{group, ++operations[group]}, rank});
        if (found == process.answers.end() || found->second != 1) ++count;
      }
    }
    return count;
  }
};

}  // namespace

TEST_CASE("L17: an operation of two processes is launched when both have submitted it, in one order") {
  TestWorld world(2);
  world.groups.push_back(CommunicationId(std::vector{TestWorld::device(0, 0), TestWorld::device(1, 0)}));
  world.groups.push_back(CommunicationId(std::vector{TestWorld::device(0, 0), TestWorld::device(1, 1)}));
  world.submit(0, 0);
  world.submit(1, 0);
  world.submit(1, 1);
  world.deliver_all();
  CHECK(world.processes[0]->launched == std::vector<Name>{{1, 1}});
  CHECK(world.processes[1]->launched == std::vector<Name>{{1, 1}});
  world.submit(0, 1);
  CHECK(world.processes[1]->launched.size() == 1);  // the leader has not answered
  world.deliver_all();
  CHECK(world.processes[0]->launched == std::vector<Name>{{1, 1}, {0, 1}});
  CHECK(world.processes[1]->launched == std::vector<Name>{{1, 1}, {0, 1}});
}

TEST_CASE("Many operations are asked for before the first answer, also if each waits for the one before") {
  TestWorld world(2);
  world.groups.push_back(CommunicationId(std::vector{TestWorld::device(0, 0), TestWorld::device(1, 0)}));
  for (const std::size_t rank : {std::size_t{0}, std::size_t{1}})
    for (std::uint64_t operation = 1; operation <= 4; ++operation)
      world.submit(0, rank, operation == 1 ? std::vector<Name>{} : std::vector<Name>{{0, operation - 1}});
  CHECK(world.processes[0]->to_leader.size() == 5);  // an Open and four Asks
  CHECK(world.processes[0]->launched.empty());
  world.deliver_all();
  CHECK(world.processes[0]->launched.size() == 4);
  CHECK(world.processes[1]->launched.size() == 4);
}

TEST_CASE("L17: in random programs of several processes every operation is launched, in one order") {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    INFO("seed " << seed);
    RandomRun run(seed, 2 + seed % 3);
    for (int step = 0; step < 300; ++step) static_cast<void>(run.step());
    run.finish();
    REQUIRE(run.unanswered() == 0);
    REQUIRE_FALSE(run.world.orders_differ());
    for (const auto& process : run.world.processes) REQUIRE(process->refused.empty());
  }
}

TEST_CASE(
    "L16, L17: whichever process ends or aborts, and when: nothing is launched by one process and refused by another") {
  std::size_t launched = 0;
  std::size_t refused = 0;
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    INFO("seed " << seed);
    RandomRun run(seed, 2 + seed % 3);
    const std::size_t moment = run.below(300);
    for (std::size_t step = 0; step < 300; ++step) {
      static_cast<void>(run.step());
      if (step != moment) continue;
      auto& victim = *run.world.processes[run.below(run.world.processes.size())];
      if (run.below(2) == 0)
        run.world.lose(victim.number);
      else if (!victim.communicators.empty())
        victim.sequencer.abort(victim.communicators.begin()->second, nullptr);
    }
    run.finish();
    for (const auto& [group, communicator] : run.world.processes[0]->communicators)
      run.world.processes[0]->sequencer.close(communicator);
    run.world.deliver_all();
    REQUIRE_FALSE(run.world.is_split());
    REQUIRE_FALSE(run.world.orders_differ());
    for (const auto& process : run.world.processes) {
      launched += process->granted.size();
      refused += process->refused.size();
    }
  }
  CHECK(launched > 2000);
  CHECK(refused > 500);
}

TEST_CASE("An abort because a process is gone is reported as that") {
  using Kind = CollectiveError::Kind;
  const auto aborted = [](const std::exception_ptr& cause) {
    return std::make_exception_ptr(
        CollectiveError(Kind::Aborted, "the communicator was aborted", std::source_location(), cause));
  };
  const auto of = [](Kind kind) { return std::make_exception_ptr(CollectiveError(kind, "why")); };
  CHECK(cox::detail::world::kind_of(aborted(of(Kind::ProcessGone))) == Kind::ProcessGone);
  CHECK(cox::detail::world::kind_of(aborted(of(Kind::ProcessSilent))) == Kind::ProcessSilent);
  CHECK(cox::detail::world::kind_of(aborted(of(Kind::Timeout))) == Kind::Aborted);
  CHECK(cox::detail::world::kind_of(of(Kind::Timeout)) == Kind::Timeout);
  CHECK(cox::detail::world::kind_of(nullptr) == Kind::Aborted);
}

TEST_CASE("Operations that are submitted together are asked for together") {
  TestWorld world(2);
  world.groups.emplace_back(std::vector{TestWorld::device(0, 0), TestWorld::device(1, 0)});
  TestWorld::Process& first = *world.processes[0];
  const CommunicatorNumber number = first.sequencer.open(world.groups[0], 1h);
  first.sends.clear();
  CollectiveSubmissions submissions;
  for (std::size_t operation = 1; operation <= 3; ++operation) {
    submissions.emplace_back();
    submissions.back().requests = {{.count = operation}};
    submissions.back().launch = test::launch_of([](const LaunchGrant&) {});
  }
  static_cast<void>(first.sequencer.submit(number, 0, submissions, 3));
  CHECK(first.sends == std::vector<std::size_t>{3});
  submissions.emplace_back();
  submissions.back().requests = {{.count = 4}};
  submissions.back().launch = test::launch_of([](const LaunchGrant&) {});
  static_cast<void>(first.sequencer.submit(number, 0, submissions, 1));
  CHECK(first.sends == std::vector<std::size_t>{3, 1});
  std::uint64_t next = 0;
  for (const Message& message : first.to_leader)
    if (const auto* const ask = std::get_if<Ask>(&message)) CHECK(ask->operation == ++next);
  CHECK(next == 4);
}
