#pragma once

#include <coxswain/runtime/base/small_vector.hpp>
#include <coxswain/runtime/communication/collective_request.hpp>
#include <coxswain/runtime/handle/binding.hpp>
#include <coxswain/runtime/tensor/copy_plan.hpp>

namespace cox {

/// One rank's request for a collective operation, with the memory that it uses.
struct CollectiveCall {
  CollectiveRequest request;
  Binding source = {};       ///< Without memory if the rank contributes no data.
  Binding destination = {};  ///< Without memory if the rank receives no data.
  CopyPlan rows = {};        ///< Of Send and Receive: layout in memory. No rows: contiguous elements, or none.
};

template <>
inline constexpr bool is_trivially_relocatable<CollectiveCall> = true;

/// Whether the call has no elements and so reads and writes nothing.
[[nodiscard]] inline bool is_of_nothing(const CollectiveCall& call) noexcept {
  return call.rows.rows != 0 ? call.rows.size() == 0 : call.request.count == 0;
}

/// One call, or the calls of a group, which are launched as one.
using CollectiveCallList = SmallVector<CollectiveCall, 1>;

}  // namespace cox
