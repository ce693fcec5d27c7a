#pragma once

#include <coxswain/runtime/base/small_vector.hpp>
#include <coxswain/runtime/communication/collective_request.hpp>
#include <coxswain/runtime/handle/binding.hpp>
#include <coxswain/runtime/tensor/copy_plan.hpp>

namespace cox {

/// What one rank asks for, with its memory.
struct CollectiveCall {
  CollectiveRequest request;
  Binding source = {};       ///< Without memory where the rank has nothing to give.
  Binding destination = {};  ///< Without memory where it gets nothing.
  CopyPlan rows =
      {};  ///< Of Send and Receive: how the elements lie in the memory; no rows: one after the other, or none.
};

/// It has no elements: it reads and writes nothing.
[[nodiscard]] inline bool is_of_nothing(const CollectiveCall& call) noexcept {
  return call.rows.rows != 0 ? call.rows.size() == 0 : call.request.count == 0;
}

/// One call, or those of a group: launched as one.
using CollectiveCallList = SmallVector<CollectiveCall, 1>;

}  // namespace cox
