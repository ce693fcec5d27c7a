#pragma once

#include <coxswain/runtime/base/location.hpp>
#include <coxswain/runtime/error/io_error.hpp>
#include <coxswain/runtime/handle/memory_usage.hpp>
#include <coxswain/runtime/memory/memory_block.hpp>

#include <cstddef>
#include <map>
#include <source_location>
#include <string>

namespace cox {

/// The state of a pool's memory, as out-of-memory errors report it. All sizes in bytes.
struct MemoryReport {
  MemoryUsage usage;
  std::size_t capacity = 0;
  std::size_t free = 0;                         ///< reserved and not in use
  std::size_t largest_free = 0;                 ///< the largest free block
  std::size_t waiting = 0;                      ///< part of `free` that queued work may still use
  std::map<std::string, std::size_t> by_label;  ///< in use, padding included; by name or "file:line"

  /// Adds a block of the pool to the report.
  void add(const MemoryBlock& block);
  /// Adds the memory of another pool.
  MemoryReport& operator+=(const MemoryReport& other);
  /// The share of the free memory that is not in the largest free block, 0 to 1.
  [[nodiscard]] double fragmentation() const noexcept;
};

/// One line: usage, free memory and its largest block, fragmentation, and the biggest owners by label.
[[nodiscard]] std::string to_string(const MemoryReport& report);

/// The error for an allocation of `size` bytes that failed: BufferTooBig if it exceeds the capacity, else OutOfMemory
/// with the report in its text. Writes the report to the log.
[[nodiscard]] IoError allocation_error(const Location& location, std::size_t size, const MemoryReport& report,
                                       std::source_location site);

}  // namespace cox
