#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace cox {

/// An operation of all ranks of a communicator, or of two of them. The order is that of `collective_operations`.
enum class CollectiveOperation : std::uint8_t {
  AllReduce,
  Reduce,
  Broadcast,
  AllGather,
  ReduceScatter,
  AllToAll,
  Barrier,
  Send,     ///< The other rank receives.
  Receive,  ///< The other rank sends.
};

struct CollectiveOperationFacts {
  CollectiveOperation operation;
  std::string_view name;
  bool has_elements;       ///< Has buffers, and so a count and an element type.
  bool reduces;            ///< Has a ReduceOperation.
  bool rooted;             ///< One rank, the root, has a special role.
  bool input_of_all_size;  ///< A rank's input has `count` elements for every rank, not once.
  bool output_of_all_size;
};

inline constexpr std::array collective_operations{
    CollectiveOperationFacts{CollectiveOperation::AllReduce, "all_reduce", true, true, false, false, false},
    CollectiveOperationFacts{CollectiveOperation::Reduce, "reduce", true, true, true, false, false},
    CollectiveOperationFacts{CollectiveOperation::Broadcast, "broadcast", true, false, true, false, false},
    CollectiveOperationFacts{CollectiveOperation::AllGather, "all_gather", true, false, false, false, true},
    CollectiveOperationFacts{CollectiveOperation::ReduceScatter, "reduce_scatter", true, true, false, true, false},
    CollectiveOperationFacts{CollectiveOperation::AllToAll, "all_to_all", true, false, false, true, true},
    CollectiveOperationFacts{CollectiveOperation::Barrier, "barrier", false, false, false, false, false},
    CollectiveOperationFacts{CollectiveOperation::Send, "send", true, false, false, false, false},
    CollectiveOperationFacts{CollectiveOperation::Receive, "recv", true, false, false, false, false},
};

namespace detail {
constexpr bool collective_operations_are_in_order() {
  for (std::size_t i = 0; i < collective_operations.size(); ++i)
    if (static_cast<std::size_t>(collective_operations[i].operation) != i) return false;
  return true;
}
}  // namespace detail
static_assert(collective_operations.size() == static_cast<std::size_t>(CollectiveOperation::Receive) + 1);
static_assert(detail::collective_operations_are_in_order());

[[nodiscard]] constexpr const CollectiveOperationFacts& facts_of(CollectiveOperation operation) noexcept {
  return collective_operations[static_cast<std::size_t>(operation)];
}
/// Whether the operation is between two ranks, one of which sends while the other receives.
[[nodiscard]] constexpr bool is_transfer(CollectiveOperation operation) noexcept {
  return operation == CollectiveOperation::Send || operation == CollectiveOperation::Receive;
}
[[nodiscard]] constexpr std::string_view to_string(CollectiveOperation operation) noexcept {
  return facts_of(operation).name;
}

}  // namespace cox
