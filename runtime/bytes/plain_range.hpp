#pragma once

#include <cstddef>
#include <ranges>
#include <span>
#include <type_traits>

namespace cox {

/// A range of elements that may be copied as bytes: a vector (but not of bool), span, array or string, of const
/// elements or not. All elements count: an array of char includes the terminating zero of a string literal. Pointers
/// are not such elements, since they mean nothing on another device; addresses of device memory are integers
/// (CUdeviceptr).
template <class Range>
concept PlainRange = std::ranges::contiguous_range<const Range> && std::ranges::sized_range<const Range> &&
                     std::is_trivially_copyable_v<std::ranges::range_value_t<const Range>> &&
                     !std::is_pointer_v<std::ranges::range_value_t<const Range>> &&
                     !std::is_member_pointer_v<std::ranges::range_value_t<const Range>>;

/// The bytes of the elements. Valid as long as those.
template <PlainRange Range>
[[nodiscard]] std::span<const std::byte> bytes_of(const Range& data) noexcept {
  return std::as_bytes(std::span(std::ranges::data(data), static_cast<std::size_t>(std::ranges::size(data))));
}

}  // namespace cox
