#pragma once

#include <cstdint>

namespace cox {

/// When a server begins with an operation that a task asks it for. Much is cheaper for several at a time: asking the
/// other ranks takes locks that all of them share, and a driver takes a graph of launches sooner than each by itself. A
/// server that gains nothing by that begins at once.
enum class SubmitMode : std::uint8_t {
  Immediate,
  Batched,  ///< at ThreadContext::at_batch_end() at the latest: the task does nothing behind the operation
};

}  // namespace cox
