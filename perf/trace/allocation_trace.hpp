#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace cox::perf {

/// What a program asked of its device's memory, in order.
struct AllocationTrace {
  struct Event {
    std::uint32_t allocation;  ///< counted from 0 in the order of the allocations
    std::uint32_t stream;      ///< of an allocation
    std::size_t bytes;         ///< 0: the allocation is freed
  };

  std::string name;
  std::vector<Event> events;
  std::size_t allocations = 0;
  std::uint32_t streams = 1;

  /// The most bytes that were allocated at a time.
  [[nodiscard]] std::size_t peak() const;
};

/// Reads a trace, plain or gzipped: a line for each event, "a ID BYTES STREAM" or "f ID". Throws std::runtime_error
/// that names the file and the line.
[[nodiscard]] AllocationTrace read_trace(const std::string& path);

}  // namespace cox::perf
