#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace cox {

/// The memory of a device as its clients use it. All sizes in bytes.
struct MemoryUsage {
  std::uint64_t number_allocs = 0;      ///< allocations alive
  std::size_t bytes_in_use = 0;         ///< as asked for
  std::size_t bytes_padding = 0;        ///< beyond that, for alignment
  std::size_t bytes_reserved = 0;       ///< taken from the device: in use, padding, and kept for reuse
  std::size_t peak_bytes_in_use = 0;    ///< highest bytes_in_use so far
  std::size_t peak_bytes_reserved = 0;  ///< highest bytes_reserved so far

  /// The usage of two devices or pools together. Peaks add up too, although they need not have been at one time.
  MemoryUsage& operator+=(const MemoryUsage& other) noexcept;
  [[nodiscard]] friend MemoryUsage operator+(MemoryUsage a, const MemoryUsage& b) noexcept { return a += b; }
  friend bool operator==(const MemoryUsage&, const MemoryUsage&) = default;
};

/// One line with decimal units and percentages of what is reserved.
[[nodiscard]] std::string to_string(const MemoryUsage& usage);

}  // namespace cox
