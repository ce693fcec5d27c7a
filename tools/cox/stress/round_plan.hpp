#pragma once

#include <coxswain/tools/cox/stress/program.hpp>
#include <coxswain/tools/cox/stress/random.hpp>
#include <coxswain/tools/cox/stress/round.hpp>

#include <cstddef>
#include <vector>

namespace cox::stress {

/// What the ranks do together for a plan of a client: its operation, now and then in a group with others. `by_nccl`:
/// without reductions that NCCL refuses (integers of 16 bits) or does otherwise (the mean of integers, which may
/// overflow, and that of ranks of which no power of two is the number, since it multiplies by the inverse).
[[nodiscard]] std::vector<RoundPart> plan_parts(const Plan& plan, std::size_t ranks, bool by_nccl, Random& random);

}  // namespace cox::stress
