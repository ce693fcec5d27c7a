#pragma once

#include <coxswain/collectives/leader/leader.hpp>
#include <coxswain/tests/collectives/world/leader_bench.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace cox::test {

/// What a process does next in one sequence.
struct ModelStep {
  enum class Kind : std::uint8_t { Ask, Refuse, Break };

  std::uint8_t sequence = 0;
  std::vector<std::pair<std::uint8_t, std::uint8_t>> awaited = {};  ///< sequence, operation; at most two
  std::uint8_t request = 0;
  Kind kind = Kind::Ask;
  std::uint8_t from = 0;  ///< of a Break
};

struct ModelSequence {
  std::uint8_t group = 0;
  Direction direction = {};
  std::uint8_t operations = 0;  ///< How many each process asks in an instance after the first one.
};

/// A world to explore: programs of processes, and what may happen to them.
struct ModelWorld {
  std::uint8_t processes = 3;
  std::vector<std::vector<DeviceId>> groups;
  std::vector<ModelSequence> sequences;
  std::vector<std::vector<ModelStep>> programs;  ///< by process
  std::size_t max_ahead = 1024;
  bool stepwise = false;   ///< Processes make their steps before, between or after what they receive; else before.
  bool completes = false;  ///< Operations complete on all processes at any later time, and processes report it.
  bool hasty = false;      ///< Processes open the next instance although a member is gone.
  std::uint8_t crashes = 0;
  std::uint8_t may_crash = 0xff;  ///< processes, as bits
  bool restarts = false;
  std::uint8_t timeouts = 0;    ///< How often a second passes while messages are on their way.
  std::uint8_t answers = 0xff;  ///< Processes that answer a Why, as bits.
  std::uint8_t max_epoch = 2;   ///< Processes open no later instance; at most 3.
};

/// A fault that the exploration must find, planted in what passes between the leader and the processes, or in the model
/// of a process.
enum class Flaw : std::uint8_t {
  None,
  ReleaseEarly,      ///< before one of the processes has asked
  SwapTurns,         ///< two releases that follow each other, for one process
  IgnoreAwaited,     ///< releases before what is awaited
  MissMismatch,      ///< different requests are taken for equal ones
  IgnoreAhead,       ///< max_ahead is not kept
  LoseRelease,       ///< one process does not get one
  LoseRefusal,       ///< nor a refusal, if it has not asked yet
  ForgetRefusals,    ///< not sent to a process that opens the sequence later
  BreakReleased,     ///< a break ends an operation that was released
  BreakUntold,       ///< to a process that has not opened the instance
  BreakOnlyOnCrash,  ///< breaks that a process makes are not sent to the others
  CrashUntold,       ///< a process is not told of a crash
  SuccessorUntold,   ///< a successor does not learn the broken epochs
  EpochKept,         ///< a process opens the broken epoch again
  HastyBreak,        ///< a process takes operations that it has asked for broken when it sends a Break
  SkipRefused,       ///< a process does not ask what it knows to be refused
  NoProgress,        ///< a process does not report what has completed
  NoDeadline,        ///< overdue operations are not noticed
};

struct Explored {
  std::size_t states = 0;
  std::size_t transitions = 0;
  std::size_t quiet = 0;  ///< states in which nothing is on its way
  std::string violation;  ///< the first that was found, with the steps that lead to it
};

/// Goes through all states that any order of steps and messages can reach, and checks in each:
/// - a process launches an operation only if all member processes have asked it, with the same request, and in the
/// order
///   of turns; the members of an instance launch the same operations in the same order;
/// - everything that a process waits for there has been launched, refused or broken;
/// - a refused or broken operation is not launched, and a launched one is not refused or broken;
/// - no process has more than max_ahead released operations of a sequence that it has not completed.
/// And when nothing is on its way: each asked operation is launched, refused or broken, or a process has not asked it;
/// then it is broken after its deadline. The launched operations complete on devices that run them one after the other.
/// All processes know the same broken epochs, and those that have opened a group have opened the same epoch.
/// Ends after so many transitions.
[[nodiscard]] Explored explore(const ModelWorld& world, Flaw flaw = Flaw::None,
                               std::size_t most_transitions = SIZE_MAX);

}  // namespace cox::test
