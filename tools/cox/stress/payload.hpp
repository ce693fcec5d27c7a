#pragma once

#include <coxswain/tools/cox/stress/random.hpp>

#include <cstddef>
#include <string_view>

namespace cox::stress {

/// The range of buffer sizes, in bytes, both ends included. All sizes are whole 32-bit words.
struct Payload {
  static constexpr std::size_t word = 4;

  std::size_t smallest = 64;
  std::size_t largest = std::size_t{1} << 20U;

  /// "64:1MiB", or one size. Throws ArgumentError.
  [[nodiscard]] static Payload parse(std::string_view option, std::string_view text);

  /// A random size; each doubling of the size has the same probability.
  [[nodiscard]] std::size_t pick(Random& random) const noexcept;
};

}  // namespace cox::stress
