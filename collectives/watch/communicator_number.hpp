#pragma once

#include <cstdint>

namespace cox {

/// Identifies a communicator that was opened. Never reused for another one.
enum class CommunicatorNumber : std::uint64_t {};

/// Identifies an operation of a communicator, for all its ranks. Never reused for another one.
struct CollectiveId {
  CommunicatorNumber communicator;
  std::uint64_t sequence;  ///< a rank's n-th operation, from 1

  friend bool operator==(const CollectiveId&, const CollectiveId&) = default;
};

}  // namespace cox
