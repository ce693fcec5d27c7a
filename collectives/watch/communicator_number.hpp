#pragma once

#include <cstdint>

namespace cox {

/// Names a communicator that was opened. Never used again for another.
enum class CommunicatorNumber : std::uint64_t {};

/// Names an operation of a communicator, for all its ranks. Never used again for another.
struct CollectiveId {
  CommunicatorNumber communicator;
  std::uint64_t sequence;  ///< a rank's n-th operation, from 1

  friend bool operator==(const CollectiveId&, const CollectiveId&) = default;
};

}  // namespace cox
