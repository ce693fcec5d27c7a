#pragma once

#include <cstdint>

namespace cox {

/// The pool from which a stream allocates new memory.
enum class AllocationMode : std::uint8_t {
  Auto,        ///< The pool for short-lived memory.
  Persistent,  ///< A separate pool for long-lived memory (weights, optimizer state).
};

}  // namespace cox
