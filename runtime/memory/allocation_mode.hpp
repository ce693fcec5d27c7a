#pragma once

#include <cstdint>

namespace cox {

/// Where new memory of a stream comes from.
enum class AllocationMode : std::uint8_t {
  Auto,        ///< From the pool of what comes and goes.
  Persistent,  ///< From a pool of its own, for what lives long (weights, optimizer state).
};

}  // namespace cox
