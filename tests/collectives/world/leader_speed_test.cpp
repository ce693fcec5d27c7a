#include <coxswain/collectives/leader/leader.hpp>
#include <coxswain/tests/collectives/world/leader_bench.hpp>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <vector>

using namespace cox;
using namespace cox::test;

namespace {

/// Each of the processes asks `operations` in a communicator of all, awaiting every second time an operation of another
/// one, and reports every 64th as completed; `idle` other communicators are open. Returns the turns, which the leader
/// must have given to all.
std::uint64_t run(std::uint16_t processes, std::uint64_t operations, std::uint16_t idle) {
  Leader leader{std::vector<ProcessFacts>(processes)};
  std::vector<DeviceId> devices;
  for (std::uint16_t process = 1; process <= processes; ++process) devices.push_back({0, 0, process});
  const Leader::Time now{};
  const auto send = [&](std::uint16_t process, Message message) {
    if (leader.receive(process, std::move(message), now)) FAIL("a fault");
  };
  for (std::uint16_t number = 0; number < idle + 2; ++number) {
    devices.back().index = number;
    for (std::uint16_t process = 0; process < processes; ++process) {
      send(process, Open{.number = number, .devices = devices, .timeout = std::chrono::minutes(10)});
      if (number >= 2) send(process, Ask{.number = number, .operation = 1});
    }
  }
  std::vector<Outgoing> outgoing;
  leader.take_outgoing(outgoing);
  std::uint64_t turns = 0;
  const std::vector<std::byte> request(40, std::byte{1});
  for (std::uint64_t operation = 1; operation <= operations; ++operation) {
    for (std::uint16_t process = 0; process < processes; ++process) {
      send(process, Ask{.number = 0, .operation = operation, .fingerprint = request});
      send(process, Ask{.number = 1, .operation = operation, .fingerprint = request, .awaited = {{0, operation}}});
      if (operation % 64 == 0)
        for (const std::uint64_t number : {0U, 1U}) send(process, Progress{number, operation - 1});
    }
    leader.take_outgoing(outgoing);
    for (const Outgoing& each : outgoing)
      if (const auto* const release = std::get_if<Release>(&each.message)) turns = release->turn;
  }
  return turns;
}

}  // namespace

TEST_CASE("The leader releases thousands of operations, with and without other communicators", "[leader]") {
  CHECK(run(2, 3000, 0) == 6000);
  CHECK(run(8, 1000, 100) == 2000 + 100);
}

// test_world "[.speed]"
TEST_CASE("Asks of a second", "[.speed]") {
  for (const auto& [processes, idle] :
       {std::pair<std::uint16_t, std::uint16_t>{2, 0}, {2, 4000}, {64, 0}, {64, 4000}}) {
    const std::uint64_t operations = 800'000U / processes;
    const auto begin = std::chrono::steady_clock::now();
    run(processes, 1, idle);
    const auto opened = std::chrono::steady_clock::now();
    run(processes, operations, idle);
    const std::chrono::duration<double> time = (std::chrono::steady_clock::now() - opened) - (opened - begin);
    std::printf("%2u processes, %4u idle communicators: %.2f million asks/s, %.2f us per operation\n", processes, idle,
                2e-6 * static_cast<double>(operations) * processes / time.count(),
                1e6 * time.count() / (2.0 * static_cast<double>(operations)));
  }
}
