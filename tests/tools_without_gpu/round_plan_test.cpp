// Which reductions the rounds of `cox stress` have with the setting collectives.reproducible.
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/tools/cox/stress/round_plan.hpp>

#include <algorithm>
#include <cstddef>
#include <vector>

using namespace cox;
using namespace cox::stress;

namespace {

bool reduces(const RoundPart& part) { return facts_of(part.operation).reduces; }

bool reduces_floats(const RoundPart& part) {
  return reduces(part) && (part.type == ElementType::F16 || part.type == ElementType::BF16 ||
                           part.type == ElementType::F32 || part.type == ElementType::F64);
}

struct PlannedRounds {
  std::size_t of_floats = 0;
  std::size_t groups_of_floats = 0;
  std::size_t mixed_groups_of_floats = 0;
  std::size_t mixed_groups = 0;
};

PlannedRounds plan_rounds(Reductions reductions) {
  PlannedRounds rounds;
  Random random(1);
  for (std::size_t i = 0; i < 5000; ++i)
    for (const Operation operation : {Operation::AllReduce, Operation::ReduceScatter, Operation::AllGather}) {
      const auto parts = plan_parts({.operation = operation, .bytes = 1024}, 3, reductions, random);
      const bool has_floats = std::ranges::any_of(parts, reduces_floats);
      const bool is_mixed = std::ranges::any_of(parts, reduces) && !std::ranges::all_of(parts, reduces);
      rounds.of_floats += has_floats;
      rounds.groups_of_floats += has_floats && parts.size() > 1;
      rounds.mixed_groups += is_mixed;
      rounds.mixed_groups_of_floats += is_mixed && has_floats;
    }
  return rounds;
}

}  // namespace

TEST_CASE("Rounds in the order of ranks have groups of floats, but none with operations that do not reduce") {
  const PlannedRounds any = plan_rounds(Reductions::NcclAndPeerMemory);
  CHECK(any.mixed_groups_of_floats > 0);
  const PlannedRounds in_order = plan_rounds(Reductions::PeerMemoryInOrder);
  CHECK(in_order.groups_of_floats > 0);
  CHECK(in_order.mixed_groups > 0);
  CHECK(in_order.mixed_groups_of_floats == 0);
  const PlannedRounds integers = plan_rounds(Reductions::NcclOfIntegers);
  CHECK(integers.of_floats == 0);
  CHECK(integers.mixed_groups > 0);
}
