#pragma once

#include <coxswain/runtime/binding.hpp>
#include <coxswain/runtime/communication/collective_request.hpp>
#include <coxswain/runtime/copy_plan.hpp>
#include <coxswain/runtime/small_vector.hpp>

#include <cstdint>

namespace cox {

/// What one rank asks for, with its memory.
struct CollectiveCall {
  CollectiveRequest request;
  Binding source = {};       ///< Without memory where the rank has nothing to give.
  Binding destination = {};  ///< Without memory where it gets nothing.
  CopyPlan rows = {};        ///< Of Send and Receive: how the elements lie in the memory; no rows: one after the other.
};

/// When a rank asks for an operation. Asking takes locks that all ranks share: where many operations come one behind
/// the other, it is cheaper to ask for several at a time.
enum class AskTime : std::uint8_t {
  Now,
  AtEndOfRow,  ///< at DeviceThread::at_end_of_row at the latest: the task that has it done does nothing behind it
};

/// One call, or those of a group: launched as one.
using CollectiveCallList = SmallVector<CollectiveCall, 1>;

}  // namespace cox
