#pragma once

#include <coxswain/runtime/memory/memory_storage.hpp>

#include <algorithm>
#include <cstddef>

namespace cox {

/// A range of device addresses.
struct MemoryRange {
  MemoryAddress address = 0;
  std::size_t bytes = 0;
};

/// The unit of addresses and sizes: storage provides memory in multiples of `bytes`.
struct Granularity {
  std::size_t bytes = 1;

  [[nodiscard]] constexpr std::size_t round_up(std::size_t value) const noexcept {
    return (value + bytes - 1) / bytes * bytes;
  }
  [[nodiscard]] constexpr std::size_t round_down(std::size_t value) const noexcept { return value / bytes * bytes; }

  /// The last whole granules inside `range`: at most `most` bytes, rounded up to whole granules. Empty if there is
  /// none.
  [[nodiscard]] constexpr MemoryRange last_within(const MemoryRange& range, std::size_t most) const noexcept {
    const MemoryAddress first = round_up(range.address);
    const MemoryAddress last = round_down(range.address + range.bytes);
    if (last <= first) return {};
    const std::size_t taken = most < last - first ? round_up(most) : last - first;
    return {last - taken, taken};
  }
};

}  // namespace cox
