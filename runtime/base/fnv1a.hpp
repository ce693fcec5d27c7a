#pragma once

#include <cstdint>
#include <string_view>

namespace cox::detail {

inline constexpr std::uint64_t fnv1a_begin = 0xcbf29ce484222325;

/// The hash FNV-1a of 64 bits by Fowler, Noll and Vo, of `text` behind what has the hash `begin`. Not for texts that an
/// attacker chooses.
[[nodiscard]] constexpr std::uint64_t fnv1a(std::string_view text, std::uint64_t begin = fnv1a_begin) noexcept {
  for (const char each : text) begin = (begin ^ static_cast<unsigned char>(each)) * 0x100000001b3;
  return begin;
}

}  // namespace cox::detail
