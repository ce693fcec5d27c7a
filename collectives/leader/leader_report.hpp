#pragma once

#include <coxswain/collectives/leader/world_message.hpp>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace cox::detail::world {

/// The state of a world, as its leader knows it.
struct LeaderReport {
  struct Process {
    bool is_present = false;
    ProcessFacts facts = {};  ///< the last ones, if it is gone
    /// Released operations that it has not reported as completed. It reports them at least with each heartbeat.
    std::uint64_t in_flight = 0;
    bool is_awaited = false;  ///< others wait for it: see Leader::awaits
  };
  /// The next operation of a communicator or of a direction of transfers, which some processes have submitted.
  struct Operation {
    std::string name = {};                    ///< and the request of the process that submitted it first
    std::string waits_for = {};               ///< the operation that it waits for; empty: itself
    std::vector<std::uint16_t> missing = {};  ///< processes that hold it back
    bool is_behind = false;                   ///< they have submitted it, but have not completed enough earlier ones
    std::chrono::steady_clock::time_point deadline = {};
  };

  std::uint64_t released = 0;              ///< operations, since the world has started
  std::vector<Process> processes = {};     ///< by number
  std::vector<Operation> operations = {};  ///< those that are overdue first come first; at most most_operations
  static constexpr std::size_t most_operations = 32;
};

}  // namespace cox::detail::world
