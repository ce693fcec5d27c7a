#pragma once

#include <coxswain/runtime/base/device_properties.hpp>
#include <coxswain/runtime/base/small_vector.hpp>
#include <coxswain/runtime/error/io_error.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <source_location>

namespace cox {

/// Numbers of elements of one vector load, best first. 16 entries reach 2^15, more than any device loads.
using VectorSizes = SmallVector<std::uint32_t, 16>;

/// The vector lengths with which a kernel may move elements of `elem_size` bytes: the largest power of two whose load
/// is at most the widest load of the device and at most max_vector_size elements, then each half of it, down to 1. If
/// an element is wider than a load, only 1. Throws IoError ElementSize for a size of zero.
[[nodiscard]] inline VectorSizes io_optimized_vector_sizes(
    const HardwareProperties& hardware, std::size_t elem_size,
    std::source_location site = std::source_location::current()) {
  if (elem_size == 0) throw IoError(IoError::Kind::ElementSize, "there are no vectors of elements of 0 B", site);
  const std::size_t fitting = hardware.load_width_bits / 8 / elem_size;
  const std::size_t longest = std::min<std::size_t>(hardware.max_vector_size, fitting);
  VectorSizes sizes;
  for (std::size_t size = std::bit_floor(std::max<std::size_t>(longest, 1)); size > 0; size /= 2)
    sizes.push_back(static_cast<std::uint32_t>(size));
  return sizes;
}

}  // namespace cox
