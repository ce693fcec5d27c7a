#pragma once

#include <coxswain/runtime/base/location.hpp>
#include <coxswain/runtime/error/server_error.hpp>

#include <cstddef>
#include <source_location>
#include <string>

namespace cox {

/// How a device's memory pools are to behave: ComputeClient::install_memory_pools.
struct MemoryPoolLayout {
  /// Bytes that all allocations together may take from the device; 0: as much as it has.
  std::size_t capacity = 0;
  /// Beyond the peak in use, in per mille of it: free memory that may be kept before free pieces elsewhere are put
  /// together instead. At most 1000.
  std::size_t slack = 20;

  friend bool operator==(const MemoryPoolLayout&, const MemoryPoolLayout&) = default;
};

/// Throws ServerError Validation unless the layout makes sense.
inline void require_valid(const MemoryPoolLayout& layout, const Location& location, std::source_location site) {
  if (layout.slack > 1000)
    throw ServerError(ServerError::Kind::Validation,
                      "a memory pool layout for " + location.to_string() + " has a slack of " +
                          std::to_string(layout.slack) + " per mille; at most 1000 make sense",
                      site);
}

}  // namespace cox
