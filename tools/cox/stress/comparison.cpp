#include <coxswain/tools/cox/stress/comparison.hpp>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <string>

namespace cox::stress {
namespace {

std::string hex(std::byte byte) {
  std::array<char, 8> text{};
  std::snprintf(text.data(), text.size(), "0x%02x", std::to_integer<unsigned>(byte));
  return text.data();
}

}  // namespace

void check_bytes(Truth& truth, const Ticket& ticket, std::span<const std::uint32_t> expected,
                 std::span<const std::byte> got) {
  const std::span<const std::byte> bytes = std::as_bytes(expected);
  if (bytes.size() != got.size()) {
    return truth.violated(Law::Data, ticket, "the read gives " + std::to_string(bytes.size()) + " B",
                          std::to_string(got.size()) + " B");
  }
  if (bytes.empty() || std::memcmp(bytes.data(), got.data(), bytes.size()) == 0) return;
  const auto differs = std::mismatch(bytes.begin(), bytes.end(), got.begin());
  const auto offset = differs.first - bytes.begin();
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) wrong += bytes[i] != got[i] ? 1U : 0U;
  truth.violated(
      Law::Data, ticket,
      "byte " + std::to_string(offset) + " of " + std::to_string(bytes.size()) + " is " + hex(*differs.first),
      hex(*differs.second) + "; " + std::to_string(wrong) + " bytes differ");
}

}  // namespace cox::stress
