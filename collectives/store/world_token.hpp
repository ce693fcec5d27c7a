#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace cox::detail {

/// A secret of 128 bits that the processes of a world share. All zeros: none.
using WorldToken = std::array<std::byte, 16>;

/// Parses 32 hexadecimal digits. std::nullopt if `text` is anything else, or all zeros.
[[nodiscard]] inline std::optional<WorldToken> parse_token(std::string_view text) noexcept {
  WorldToken token{};
  if (text.size() != 2 * token.size()) return std::nullopt;
  unsigned all = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char digit = text[i];
    unsigned value = 0;
    if (digit >= '0' && digit <= '9') {
      value = static_cast<unsigned>(digit - '0');
    } else if (digit >= 'a' && digit <= 'f') {
      value = static_cast<unsigned>(digit - 'a') + 10;
    } else if (digit >= 'A' && digit <= 'F') {
      value = static_cast<unsigned>(digit - 'A') + 10;
    } else {
      return std::nullopt;
    }
    all |= value;
    token[i / 2] = static_cast<std::byte>((std::to_integer<unsigned>(token[i / 2]) << 4U) | value);
  }
  if (all == 0) return std::nullopt;
  return token;
}

/// The token as 32 hexadecimal digits, as parse_token() takes it.
[[nodiscard]] std::string to_hexadecimal(const WorldToken& token);

/// A token that cannot be guessed. Throws std::system_error if the system has no random numbers.
[[nodiscard]] WorldToken random_token();

/// Whether the tokens are equal. The time does not depend on where they differ, so that a peer cannot guess a token
/// byte by byte.
[[nodiscard]] inline bool tokens_equal(const WorldToken& one, const WorldToken& other) noexcept {
  std::byte difference{};
  for (std::size_t i = 0; i < one.size(); ++i) {
    difference |= one[i] ^ other[i];
    asm volatile("" : "+r"(difference));  // keeps the compiler from ending the loop at the first difference
  }
  return difference == std::byte{};
}

}  // namespace cox::detail
