#pragma once

#include <coxswain/runtime/handle/memory_usage.hpp>
#include <coxswain/runtime/memory/memory_block.hpp>

#include <cstddef>
#include <map>
#include <string>

namespace cox {

/// Everything about a pool's memory that an out-of-memory error should say. All sizes in bytes.
struct MemoryReport {
  MemoryUsage usage;
  std::size_t capacity = 0;
  std::size_t free = 0;                         ///< reserved and not in use
  std::size_t largest_free = 0;                 ///< the largest piece of it
  std::size_t waiting = 0;                      ///< of the free memory: what queued work may still use
  std::map<std::string, std::size_t> by_label;  ///< in use, padding included; by name or "file:line"

  /// Counts one more block of the pool.
  void add(const MemoryBlock& block);
  /// The memory of two pools together.
  MemoryReport& operator+=(const MemoryReport& other);
  /// The share of the free memory that is not in its largest piece, 0 to 1.
  [[nodiscard]] double fragmentation() const noexcept;
};

/// One line: usage, free memory and its largest piece, fragmentation, and the biggest owners by label.
[[nodiscard]] std::string to_string(const MemoryReport& report);

}  // namespace cox
