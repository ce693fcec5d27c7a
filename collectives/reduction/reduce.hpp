#pragma once

#include <coxswain/collectives/reduction/instruction_set.hpp>
#include <coxswain/collectives/reduction/rank_inputs.hpp>
#include <coxswain/runtime/communication/reduce_operation.hpp>
#include <coxswain/runtime/tensor/element_type.hpp>

#include <algorithm>
#include <cstddef>
#include <span>

namespace cox::detail {

/// What thread `part` of `parts` reduces: the parts cover all elements once, are about equally large, and begin at
/// multiples of 1024 elements. Parts may be empty.
[[nodiscard]] constexpr ElementRange part_of(std::size_t elements, std::size_t part, std::size_t parts) noexcept {
  constexpr std::size_t unit = 1024;
  const std::size_t units = (elements + unit - 1) / unit;
  const std::size_t first = std::min(elements, units * part / parts * unit);
  const std::size_t end = std::min(elements, units * (part + 1) / parts * unit);
  return {first, end - first};
}

/// Makes one tensor of all ranks' contributions, which are given in the order of ranks, one at least. Pointers are
/// those of element 0, whatever the range, and aligned for their elements at least; `to` may be one of the
/// contributions, and else overlaps none. On the calling thread; several threads may reduce ranges that do not overlap
/// at the same time.
///
/// Every element is made in the order of ranks, so that its bits depend on the contributions alone: not on the range,
/// the run or the rank. A NaN anywhere makes a NaN, by Min and Max too (NCCL's drop it), and always the same one:
/// quiet, positive, without payload. Of equal contributions Min and Max take the first, so that the order of ranks
/// decides between +0 and -0. The types it is computed in: `reducible_types`.
///
/// Throws CollectiveError Validation for a type that cannot be reduced; does not allocate otherwise.
void reduce(ElementType type, ReduceOperation operation, std::span<const std::byte* const> contributions,
            ElementRange range, std::byte* to);

/// As `reduce`, with what this processor does best, but the range's first element goes to `to`, and the type must be
/// one that can be reduced.
void reduce_range(ElementType type, ReduceOperation operation, const RankInputs& contributions, ElementRange range,
                  std::byte* to) noexcept;
/// As that; the set must be one that the processor can run.
void reduce_range(InstructionSet set, ElementType type, ReduceOperation operation, const RankInputs& contributions,
                  ElementRange range, std::byte* to) noexcept;

/// All of them: the range {0, elements}.
void reduce(ElementType type, ReduceOperation operation, std::span<const std::byte* const> contributions,
            std::size_t elements, std::byte* to);

}  // namespace cox::detail
