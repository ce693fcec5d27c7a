#pragma once

#include <coxswain/runtime/base/caller.hpp>
#include <coxswain/runtime/base/small_vector.hpp>
#include <coxswain/runtime/communication/collective_operation.hpp>
#include <coxswain/runtime/communication/reduce_operation.hpp>
#include <coxswain/runtime/tensor/element_type.hpp>

#include <cstddef>
#include <optional>
#include <string>

namespace cox {

/// What one rank asks for. All ranks of an operation must ask for the same; a Barrier is only a Barrier, `root` counts
/// only where there is one, `reduce_operation` only where something is reduced. A Send goes with a Receive.
struct CollectiveRequest {
  CollectiveOperation operation = CollectiveOperation::AllReduce;
  ElementType element_type = ElementType::F32;
  /// Elements. Of the smaller of a rank's two buffers: what a rank gives to AllGather, what it gets from
  /// ReduceScatter, what goes from each rank to each in AllToAll.
  std::size_t count = 0;
  ReduceOperation reduce_operation = ReduceOperation::Sum;
  std::size_t root = 0;  ///< A rank; of Send and Receive the other one.
  Caller caller = {};
};

/// One operation, or those of a group, which are launched as one.
using CollectiveRequests = SmallVector<CollectiveRequest, 1>;

/// "all_reduce (sum) of 4 f32 at train.cpp:31".
[[nodiscard]] std::string to_string(const CollectiveRequest& request);
/// As that; "a group of 3, all_reduce (sum) of 4 f32 at train.cpp:31 first" where there are `size` of them, not none.
[[nodiscard]] std::string to_string(const CollectiveRequest& first, std::size_t size);
/// The same of all of them. Not of none.
[[nodiscard]] inline std::string to_string(const CollectiveRequests& requests) {
  return to_string(requests.front(), requests.size());
}

/// In what two ranks' requests differ, with both values and both call sites; nothing if they go together.
[[nodiscard]] std::optional<std::string> mismatch(const CollectiveRequest& first, const CollectiveRequest& other);
/// As that, for groups, which also must have as many operations. Not of none.
[[nodiscard]] std::optional<std::string> mismatch(const CollectiveRequests& first, const CollectiveRequests& other);

}  // namespace cox
