#pragma once

#include <coxswain/runtime/base/caller.hpp>
#include <coxswain/runtime/base/small_vector.hpp>
#include <coxswain/runtime/communication/collective_operation.hpp>
#include <coxswain/runtime/communication/reduce_operation.hpp>
#include <coxswain/runtime/tensor/element_type.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace cox {

/// Which operation of a program this is, as far as the ranks number them: operations that match must have equal tags.
/// All zero: not numbered.
struct CollectiveTag {
  std::uint32_t step = 0;
  std::uint32_t part = 0;  ///< of the step

  friend bool operator==(const CollectiveTag&, const CollectiveTag&) = default;
};

/// "part 2 of step 7".
[[nodiscard]] std::string to_string(const CollectiveTag& tag);

/// One rank's request for an operation. The requests of all ranks must be equal, with these exceptions: `root` counts
/// only if the operation has a root, `reduce_operation` only if it reduces, for a Barrier only the operation and its
/// tag count, and a Send matches a Receive.
struct CollectiveRequest {
  CollectiveOperation operation = CollectiveOperation::AllReduce;
  ElementType element_type = ElementType::F32;
  /// In elements, of the smaller of a rank's two buffers: the input of AllGather, the output of ReduceScatter, the part
  /// that each rank sends to each rank in AllToAll.
  std::size_t count = 0;
  ReduceOperation reduce_operation = ReduceOperation::Sum;
  std::size_t root = 0;  ///< A rank; for Send and Receive the other rank.
  CollectiveTag tag = {};
  Caller caller = {};
};

/// One operation, or the operations of a group, which are launched as one.
using CollectiveRequests = SmallVector<CollectiveRequest, 1>;

/// "all_reduce (sum) of 4 f32 at train.cpp:31".
[[nodiscard]] std::string to_string(const CollectiveRequest& request);
/// As above for one request. For a group of `size` requests: "a group of 3, all_reduce (sum) of 4 f32 at train.cpp:31
/// first". Precondition: `size` is not 0.
[[nodiscard]] std::string to_string(const CollectiveRequest& first, std::size_t size);
/// The text for all of `requests`, which must not be empty.
[[nodiscard]] inline std::string to_string(const CollectiveRequests& requests) {
  return to_string(requests.front(), requests.size());
}

/// The first difference between two ranks' requests, with both values and both call sites; nothing if they match.
[[nodiscard]] std::optional<std::string> mismatch(const CollectiveRequest& first, const CollectiveRequest& other);
/// As above for groups, which must also have the same number of operations. Neither may be empty.
[[nodiscard]] std::optional<std::string> mismatch(const CollectiveRequests& first, const CollectiveRequests& other);

}  // namespace cox
