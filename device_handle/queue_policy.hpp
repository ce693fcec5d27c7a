#pragma once

#include <cstdint>

namespace cox {

/// What a submit does when its device's queue holds as many closures as its capacity.
enum class QueuePolicy : std::uint8_t {
  Grow,   ///< Queues anyway: the capacity is not enforced.
  Block,  ///< Waits until there is room. Device threads do not wait.
  Fail,   ///< Throws CallError QueueFull.
};

}  // namespace cox
