#include <coxswain/collectives/store/world_token.hpp>

#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace cox::detail {

std::string to_hexadecimal(const WorldToken& token) {
  static constexpr std::string_view digits = "0123456789abcdef";
  std::string text;
  for (const std::byte byte : token)
    text += {digits[std::to_integer<unsigned>(byte >> 4)], digits[std::to_integer<unsigned>(byte) & 15U]};
  return text;
}

WorldToken random_token() {
  WorldToken token{};
  if (::getentropy(token.data(), token.size()) != 0)
    throw std::system_error(errno, std::generic_category(), "getentropy");
  return token;
}

}  // namespace cox::detail
