#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace cox {

/// Memory usage of a device by its clients. All sizes in bytes.
struct MemoryUsage {
  std::uint64_t number_allocs = 0;      ///< live allocations
  std::size_t bytes_in_use = 0;         ///< as requested
  std::size_t bytes_padding = 0;        ///< in addition to that, for alignment
  std::size_t bytes_reserved = 0;       ///< taken from the device: in use, padding, and kept for reuse
  std::size_t peak_bytes_in_use = 0;    ///< highest bytes_in_use so far
  std::size_t peak_bytes_reserved = 0;  ///< highest bytes_reserved so far

  /// Adds the usage of another device or pool. Peaks are added too, although they may have occurred at different times.
  MemoryUsage& operator+=(const MemoryUsage& other) noexcept;
  [[nodiscard]] friend MemoryUsage operator+(MemoryUsage a, const MemoryUsage& b) noexcept { return a += b; }
  friend bool operator==(const MemoryUsage&, const MemoryUsage&) = default;
};

/// One line with decimal units and percentages of the reserved bytes.
[[nodiscard]] std::string to_string(const MemoryUsage& usage);

}  // namespace cox
