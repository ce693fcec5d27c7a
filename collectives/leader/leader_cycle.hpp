#pragma once

#include <coxswain/collectives/leader/leader_sequence.hpp>

#include <cstdint>
#include <vector>

namespace cox::detail::world {

/// One wait of a cycle: `operation` waits for `awaited`, because process `process` asked so. The next step begins at
/// `awaited`, or at an earlier operation of its sequence, which comes before it.
struct CycleStep {
  OperationId operation;
  std::uint16_t process;
  OperationId awaited;
};

/// The cycle that operations would wait in if process `process` asked `closing` with these waits; empty if there is
/// none. An operation waits for the operations that its asks name, and for the earlier ones of its sequence. Costs a
/// few comparisons if no operation waits for `closing` or a later one of its sequence.
[[nodiscard]] std::vector<CycleStep> find_cycle(const LeaderSequences& sequences, OperationId closing,
                                                std::uint16_t process, const std::vector<OperationId>& awaited);

}  // namespace cox::detail::world
