#pragma once

#include <algorithm>
#include <cstdint>

namespace cox::perf {

/// What each 64-bit word of the kept memory of one device must hold after an update. The memory consists of slices;
/// update n writes slice n modulo the number of slices. So a word names the update, the position and the device.
struct Contents {
  std::uint64_t words = 0;        ///< of the memory
  std::uint64_t slice_words = 0;  ///< of a slice; the last slice may be shorter

  struct Part {
    std::uint64_t first = 0;
    std::uint64_t count = 0;
  };

  [[nodiscard]] constexpr std::uint64_t slices() const noexcept { return (words + slice_words - 1) / slice_words; }
  [[nodiscard]] constexpr Part all() const noexcept { return {0, words}; }
  /// What that update writes.
  [[nodiscard]] constexpr Part slice_of(std::uint64_t update) const noexcept {
    const std::uint64_t first = update % slices() * slice_words;
    return {first, std::min(slice_words, words - first)};
  }
  /// The word at that position once all updates up to that one are complete. The kernel in gpu_worker.cpp has the same
  /// lines.
  [[nodiscard]] constexpr std::uint64_t word(std::uint64_t at, std::uint64_t update,
                                             std::uint64_t device) const noexcept {
    const std::uint64_t count = slices();
    const std::uint64_t age = (update % count + count - at / slice_words) % count;
    const std::uint64_t writer = update > age ? update - age : 0;
    return (writer + 1) * 0x9E3779B97F4A7C15U ^ (at + 1) * 0xC2B2AE3D27D4EB4FU ^ (device + 1) * 0x165667B19E3779F9U;
  }
};

}  // namespace cox::perf
