#pragma once

#include <cstdint>

namespace cox {

/// When a server starts an operation that a task submits. Several operations are often less expensive together than one
/// by one: submitting to the other ranks takes locks that all ranks share, and a driver accepts a graph of launches
/// faster than single launches. A server that does not benefit from batches starts the operation at once.
enum class SubmitMode : std::uint8_t {
  Immediate,
  Batched,  ///< at ThreadContext::at_batch_end() at the latest; must be the last action of the task
};

}  // namespace cox
