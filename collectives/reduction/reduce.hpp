#pragma once

#include <coxswain/collectives/reduction/instruction_set.hpp>
#include <coxswain/collectives/reduction/rank_inputs.hpp>
#include <coxswain/runtime/communication/reduce_operation.hpp>
#include <coxswain/runtime/tensor/element_type.hpp>

#include <algorithm>
#include <cstddef>
#include <span>

namespace cox::detail {

/// The elements that thread `part` of `parts` reduces. The parts cover all elements once, are of about equal size, and
/// begin at multiples of 1024 elements. Parts may be empty.
[[nodiscard]] constexpr ElementRange part_of(std::size_t elements, std::size_t part, std::size_t parts) noexcept {
  constexpr std::size_t unit = 1024;
  const std::size_t units = (elements + unit - 1) / unit;
  const std::size_t first = std::min(elements, units * part / parts * unit);
  const std::size_t end = std::min(elements, units * (part + 1) / parts * unit);
  return {first, end - first};
}

/// Reduces the contributions of all ranks to one tensor. There is at least one contribution; they are in the order of
/// ranks. Pointers point to element 0, also if the range starts later, and are at least aligned for their elements.
/// `to` may be one of the contributions, otherwise it must not overlap any. Runs on the calling thread; several threads
/// may reduce disjoint ranges concurrently.
///
/// Each element is computed in the order of ranks, so its bits depend only on the contributions, not on the range, the
/// run or the rank. If any contribution is a NaN, the result is a NaN, also for Min and Max (NCCL's drop it), and
/// always the same one: quiet, positive, without payload. Of equal contributions Min and Max take the first, so the
/// order of ranks decides between +0 and -0. `reducible_types` lists the types in which it is computed.
///
/// Throws CollectiveError Validation for a type that cannot be reduced; does not allocate otherwise.
void reduce(ElementType type, ReduceOperation operation, std::span<const std::byte* const> contributions,
            ElementRange range, std::byte* to);

/// Like reduce(), with the best instruction set of this processor, but writes the range's first element to `to`.
/// Precondition: the type can be reduced.
void reduce_range(ElementType type, ReduceOperation operation, const RankInputs& contributions, ElementRange range,
                  std::byte* to) noexcept;
/// Like reduce_range() above, with the given instruction set, which the processor must support.
void reduce_range(InstructionSet set, ElementType type, ReduceOperation operation, const RankInputs& contributions,
                  ElementRange range, std::byte* to) noexcept;

/// Reduces all elements: the range {0, elements}.
void reduce(ElementType type, ReduceOperation operation, std::span<const std::byte* const> contributions,
            std::size_t elements, std::byte* to);

}  // namespace cox::detail
