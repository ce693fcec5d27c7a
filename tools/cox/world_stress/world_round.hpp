#pragma once

#include <coxswain/tools/cox/world_stress/world_fault.hpp>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace cox::stress {

struct WorldStressOptions {
  std::uint64_t rounds = 1;
  std::uint16_t processes = 4;
  std::uint64_t seed = 0;
  WorldFaultRates rates;
  std::string flaw = "none";  ///< of the processes: see WorldMember
  std::chrono::milliseconds heartbeat{50};
  std::chrono::milliseconds silence{300};
};

/// What has happened in a round.
struct WorldRoundOutcome {
  bool is_held_up = false;                         ///< This process did not run for a while: the times say nothing.
  std::string wrong;                               ///< Why the round has failed; empty: it has not.
  std::vector<std::chrono::nanoseconds> notified;  ///< how long after the fault each surviving process was notified
};

/// Starts the processes of a world, has the fault happen to one of them, and checks what each of them reports: who is
/// notified of what, and when (L16), and that the others continue. `program`: this program with the arguments of a
/// member, but its last one. Blocks, at most for half a minute. Throws std::system_error, StoreError.
[[nodiscard]] WorldRoundOutcome run_world_round(const WorldStressOptions& options, const WorldFaultPlan& plan,
                                                const std::vector<std::string>& program);

}  // namespace cox::stress
