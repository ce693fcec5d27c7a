#pragma once

#include <coxswain/tools/cox/stress/options.hpp>
#include <coxswain/tools/cox/stress/program.hpp>
#include <coxswain/tools/cox/stress/random.hpp>
#include <coxswain/tools/cox/stress/round.hpp>

#include <cstddef>
#include <vector>

namespace cox::stress {

/// The parts of the round for a plan of a client: its operation, sometimes in a group with others.
[[nodiscard]] std::vector<RoundPart> plan_parts(const Plan& plan, std::size_t ranks, Reductions reductions,
                                                Random& random);

/// Makes some of the reductions of floats ones whose results depend on the order in which they are computed.
void choose_rounded(std::vector<RoundPart>& parts, Random& random);

}  // namespace cox::stress
