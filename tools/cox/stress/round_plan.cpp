#include <coxswain/tools/cox/stress/round_plan.hpp>

#include <coxswain/runtime/communication/reducible_types.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

namespace cox::stress {
namespace {

CollectiveOperation operation_of(Operation operation) noexcept {
  switch (operation) {
    case Operation::Transfer: return CollectiveOperation::Send;
    case Operation::AllGather: return CollectiveOperation::AllGather;
    case Operation::ReduceScatter: return CollectiveOperation::ReduceScatter;
    case Operation::Broadcast: return CollectiveOperation::Broadcast;
    case Operation::AllToAll: return CollectiveOperation::AllToAll;
    default: return CollectiveOperation::AllReduce;
  }
}

// Not F8: it does not hold large enough whole numbers exactly.
bool is_recomputed(ElementType type) noexcept {
  return can_reduce(type) && type != ElementType::F8E4M3 && type != ElementType::F8E5M2;
}

/// What a round consists of.
enum class Parts : std::uint8_t { One, Reductions, Mixed };

/// Whether the result of a reduction is exact, which depends on the implementation that does it.
struct Exactness {
  std::size_t ranks;
  Reductions reductions;
  Parts parts;

  [[nodiscard]] bool has(ElementType type, ReduceOperation reduce) const noexcept {
    if (reductions == Reductions::All) return true;
    const bool is_float = accumulate_type(type) == ElementType::F32 || type == ElementType::F64;
    const bool is_mean = reduce == ReduceOperation::Mean;
    if (is_float && reductions == Reductions::NcclOfIntegers) return false;
    if (is_float && reductions == Reductions::PeerMemoryInOrder && parts == Parts::Mixed) return false;
    if (is_mean && is_float) return std::has_single_bit(ranks);
    const bool not_by_nccl = is_mean || type == ElementType::I16 || type == ElementType::U16;
    const bool in_peer_memory =
        reductions == Reductions::NcclAndPeerMemory || reductions == Reductions::PeerMemoryInOrder;
    return !not_by_nccl || (in_peer_memory && parts == Parts::One);
  }
};

RoundPart plan_part(CollectiveOperation operation, std::size_t bytes, const Exactness& exactness, Random& random) {
  const std::size_t ranks = exactness.ranks;
  const CollectiveOperationFacts& facts = facts_of(operation);
  RoundPart part{.operation = operation};
  do {
    part.type = element_types[random.below(element_types.size())].type;
    part.reduce = static_cast<ReduceOperation>(random.below(reduce_operation_names.size()));
  } while (facts.reduces && (!is_recomputed(part.type) || !exactness.has(part.type, part.reduce)));
  part.root = static_cast<std::size_t>(random.below(ranks));
  const std::size_t block = bytes / (facts.input_of_all_size || facts.output_of_all_size ? ranks : 1);
  part.count = std::max<std::size_t>(block / element_size(part.type), 1);
  part.seed = random.next();
  return part;
}

}  // namespace

void choose_rounded(std::vector<RoundPart>& parts, Random& random) {
  for (RoundPart& part : parts) {
    const bool is_float = part.type == ElementType::F16 || part.type == ElementType::BF16 ||
                          part.type == ElementType::F32 || part.type == ElementType::F64;
    const bool adds = part.reduce == ReduceOperation::Sum || part.reduce == ReduceOperation::Mean;
    part.rounded = facts_of(part.operation).reduces && is_float && adds && random.below(2) == 0;
  }
}

std::vector<RoundPart> plan_parts(const Plan& plan, std::size_t ranks, Reductions reductions, Random& random) {
  constexpr std::array others{CollectiveOperation::AllReduce, CollectiveOperation::Reduce,  // these two reduce
                              CollectiveOperation::Barrier, CollectiveOperation::Broadcast};
  constexpr std::uint64_t one_group_in = 8;
  const bool group = plan.operation != Operation::Transfer && random.below(one_group_in) == 0;
  const std::size_t more = group ? 1 + static_cast<std::size_t>(random.below(2)) : 0;
  const std::size_t bytes = plan.bytes / (more + 1);
  const CollectiveOperation first = operation_of(plan.operation);
  // Floats may be in a group of reductions only.
  const bool only_reduces = reductions == Reductions::PeerMemoryInOrder && facts_of(first).reduces;
  const std::size_t choices = only_reduces ? 2 : others.size();
  const Exactness exactness{ranks, reductions, !group ? Parts::One : only_reduces ? Parts::Reductions : Parts::Mixed};
  std::vector<RoundPart> parts{plan_part(first, bytes, exactness, random)};
  for (std::size_t i = 0; i < more; ++i)
    parts.push_back(plan_part(others[random.below(choices)], bytes, exactness, random));
  return parts;
}

}  // namespace cox::stress
