#include <coxswain/runtime/telemetry/json_text.hpp>

#include <fmt/format.h>

#include <cstddef>

namespace cox::detail {
namespace {

constexpr unsigned byte_at(std::string_view text, std::size_t i) noexcept {
  return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U;
}

// Length in bytes of the UTF-8 sequence of two to four bytes at the start of `text`; 0 if there is none.
std::size_t sequence(std::string_view text) noexcept {
  const unsigned first = byte_at(text, 0);
  const unsigned second = byte_at(text, 1);
  std::size_t length = 0;
  if (first >= 0xC2 && first <= 0xDF) length = 2;
  if (first >= 0xE0 && first <= 0xEF) length = 3;
  if (first >= 0xF0 && first <= 0xF4) length = 4;
  const bool overlong = (first == 0xE0 && second < 0xA0) || (first == 0xF0 && second < 0x90);
  const bool no_character = (first == 0xED && second > 0x9F) || (first == 0xF4 && second > 0x8F);
  if (overlong || no_character) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte_at(text, i) & 0xC0U) != 0x80U) return 0;
  }
  return length;
}

}  // namespace

std::string json_text(std::string_view text) {
  std::string json = "\"";
  while (!text.empty()) {
    const unsigned byte = byte_at(text, 0);
    std::size_t taken = 1;
    if (byte == '"' || byte == '\\') {
      (json += '\\') += text.front();
    } else if (byte < 0x20) {
      json += fmt::format("\\u{:04x}", byte);
    } else if (byte < 0x80) {
      json += text.front();
    } else if (const std::size_t length = sequence(text); length != 0) {
      json += text.substr(0, taken = length);
    } else {
      json += "\\ufffd";
    }
    text.remove_prefix(taken);
  }
  return json += '"';
}

}  // namespace cox::detail
