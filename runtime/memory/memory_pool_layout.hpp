#pragma once

#include <coxswain/runtime/base/location.hpp>
#include <coxswain/runtime/error/server_error.hpp>

#include <cstddef>
#include <cstdint>
#include <source_location>
#include <string>

namespace cox {

/// The pool from which a stream allocates new memory.
enum class AllocationMode : std::uint8_t {
  Auto,        ///< The pool for short-lived memory.
  Persistent,  ///< A separate pool for long-lived memory (weights, optimizer state).
};

/// The configuration of the memory pools of a device; see ComputeClient::install_memory_pools.
struct MemoryPoolLayout {
  /// Bytes that all allocations together may take from the device; 0: the device's full capacity, which is also the
  /// maximum.
  std::size_t capacity = 0;
  /// Free memory that may be kept beyond the peak in use before free granules elsewhere are combined instead. In per
  /// mille of the peak, at most 1000.
  std::size_t slack = 20;

  friend bool operator==(const MemoryPoolLayout&, const MemoryPoolLayout&) = default;
};

/// Throws ServerError Validation if `slack` is above 1000.
inline void require_valid(const MemoryPoolLayout& layout, const Location& location, std::source_location site) {
  if (layout.slack > 1000)
    throw ServerError(ServerError::Kind::Validation,
                      "a memory pool layout for " + location.to_string() + " has a slack of " +
                          std::to_string(layout.slack) + " per mille; the maximum is 1000",
                      site);
}

}  // namespace cox
