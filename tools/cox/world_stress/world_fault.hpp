#pragma once

#include <coxswain/tools/cox/stress/random.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace cox::stress {

/// What happens to a process of a world, or to one of its connections.
enum class WorldFault : std::uint8_t {
  Kill,  ///< SIGKILL
  Stop,  ///< SIGSTOP, and SIGCONT when the others have been notified
  Slow,  ///< All its messages arrive later.
  Cut,   ///< One of its connections ends, for both processes or for one, or forwards nothing any more.
};
inline constexpr std::array<std::string_view, 4> world_fault_names{"kill", "stop", "slow", "cut"};

/// What the processes do.
enum class Scenario : std::uint8_t {
  Sums,      ///< collectives that succeed
  Refusals,  ///< and some whose requests differ, in one process or between two
  Aborts,    ///< and some whose communicator a rank aborts
  Overdue,   ///< and some that a rank leaves out until the others have been notified
  Leaving,   ///< collectives that succeed, and the end
};
inline constexpr std::array<std::string_view, 5> scenario_names{"sums", "refusals", "aborts", "overdue", "leaving"};

/// How a connection is cut.
enum class Cut : std::uint8_t { Ends, EndsForLower, EndsForHigher, Silent };
inline constexpr std::array<std::string_view, 4> cut_names{"ends", "ends for the lower", "ends for the higher",
                                                           "silent"};

/// A state of the protocol: before the `count`-th message of a type from a process reaches its receiver.
struct ProtocolState {
  std::string_view name{};  ///< of the message
  std::size_t type = 0;     ///< its index in detail::world::Message
  Scenario scenario = Scenario::Sums;
  bool of_leader = false;     ///< process 0 sends it
  bool is_data = false;       ///< on a connection for data, sent by any process
  bool is_joining = false;    ///< while the world starts
  bool is_second = false;     ///< The last process is killed before: the message is a consequence of that.
  std::uint64_t most = 1;     ///< The count is at most this.
  std::uint64_t skipped = 0;  ///< messages of the type that are not counted
};

/// All states in which a process can fail, each once.
[[nodiscard]] const std::array<ProtocolState, 23>& protocol_states();

/// The fault of a round.
struct WorldFaultPlan {
  WorldFault fault = WorldFault::Kill;
  std::size_t state = 0;     ///< index in protocol_states()
  std::uint64_t count = 1;   ///< the number of the message among those of its type from the victim
  std::uint16_t victim = 0;  ///< who sends the message
  std::uint16_t peer = 0;    ///< of Cut: who receives it
  Cut cut = Cut::Ends;
  std::chrono::milliseconds delay{0};  ///< of Slow

  [[nodiscard]] const ProtocolState& at() const { return protocol_states()[state]; }
  /// The process that the others must do without.
  [[nodiscard]] std::uint16_t lost() const noexcept {
    return fault == WorldFault::Cut && peer > victim ? peer : victim;
  }
  /// "kill of process 2 before its message 3 of type Ask (sums)".
  [[nodiscard]] std::string to_string() const;
};

/// How often each fault occurs.
struct WorldFaultRates {
  std::array<double, world_fault_names.size()> weights{4, 3, 1, 2};

  /// "kill=0.5,stop=0.5", or "kill" for that fault alone. Throws ArgumentError.
  [[nodiscard]] static WorldFaultRates parse(std::string_view option, std::string_view text);
};

/// The plan of a round: a function of the seed. Successive rounds go through all states.
[[nodiscard]] WorldFaultPlan plan_world_fault(const WorldFaultRates& rates, std::uint64_t seed, std::uint64_t round,
                                              std::uint16_t processes);

}  // namespace cox::stress
