#include <coxswain/servers/cuda/compile/sha256.hpp>

#include <algorithm>
#include <bit>
#include <cstring>

namespace cox::detail {
namespace {

constexpr std::size_t block_size = 64;

/// The first 32 bits of the fractions of the cube roots of the first 64 primes.
constexpr std::array<std::uint32_t, 64> round_constants{
    0x428a2f98U, 0x71374491U, 0xb5c0fbcfU, 0xe9b5dba5U, 0x3956c25bU, 0x59f111f1U, 0x923f82a4U, 0xab1c5ed5U,
    0xd807aa98U, 0x12835b01U, 0x243185beU, 0x550c7dc3U, 0x72be5d74U, 0x80deb1feU, 0x9bdc06a7U, 0xc19bf174U,
    0xe49b69c1U, 0xefbe4786U, 0x0fc19dc6U, 0x240ca1ccU, 0x2de92c6fU, 0x4a7484aaU, 0x5cb0a9dcU, 0x76f988daU,
    0x983e5152U, 0xa831c66dU, 0xb00327c8U, 0xbf597fc7U, 0xc6e00bf3U, 0xd5a79147U, 0x06ca6351U, 0x14292967U,
    0x27b70a85U, 0x2e1b2138U, 0x4d2c6dfcU, 0x53380d13U, 0x650a7354U, 0x766a0abbU, 0x81c2c92eU, 0x92722c85U,
    0xa2bfe8a1U, 0xa81a664bU, 0xc24b8b70U, 0xc76c51a3U, 0xd192e819U, 0xd6990624U, 0xf40e3585U, 0x106aa070U,
    0x19a4c116U, 0x1e376c08U, 0x2748774cU, 0x34b0bcb5U, 0x391c0cb3U, 0x4ed8aa4aU, 0x5b9cca4fU, 0x682e6ff3U,
    0x748f82eeU, 0x78a5636fU, 0x84c87814U, 0x8cc70208U, 0x90befffaU, 0xa4506cebU, 0xbef9a3f7U, 0xc67178f2U};

std::uint32_t big_endian_word(const std::byte* bytes) noexcept {
  std::uint32_t word = 0;
  for (std::size_t i = 0; i < 4; ++i) word = (word << 8U) | std::to_integer<std::uint32_t>(bytes[i]);
  return word;
}

using Schedule = std::array<std::uint32_t, 64>;

Schedule schedule_of(const std::byte* block) noexcept {
  Schedule w{};
  for (std::size_t i = 0; i < 16; ++i) w[i] = big_endian_word(block + 4 * i);
  for (std::size_t i = 16; i < 64; ++i) {
    const std::uint32_t a = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ (w[i - 15] >> 3U);
    const std::uint32_t b = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ (w[i - 2] >> 10U);
    w[i] = w[i - 16] + a + w[i - 7] + b;
  }
  return w;
}

}  // namespace

void Sha256::take_block(const std::byte* block) noexcept {
  const Schedule w = schedule_of(block);
  auto [a, b, c, d, e, f, g, h] = state_;
  for (std::size_t i = 0; i < 64; ++i) {
    const std::uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
    const std::uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + round_constants[i] + w[i];
    const std::uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
    const std::uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + t1;
    d = c, c = b, b = a, a = t1 + t2;
  }
  const std::array<std::uint32_t, 8> added{a, b, c, d, e, f, g, h};
  for (std::size_t i = 0; i < added.size(); ++i) state_[i] += added[i];
}

void Sha256::update(std::span<const std::byte> bytes) noexcept {
  while (!bytes.empty()) {
    const std::size_t used = length_ % block_size;
    if (used == 0 && bytes.size() >= block_size) {
      take_block(bytes.data());
      length_ += block_size;
      bytes = bytes.subspan(block_size);
      continue;
    }
    const std::size_t count = std::min(block_size - used, bytes.size());
    std::memcpy(pending_.data() + used, bytes.data(), count);
    length_ += count;
    bytes = bytes.subspan(count);
    if (used + count == block_size) take_block(pending_.data());
  }
}

void Sha256::update_field(std::string_view text) noexcept {
  std::array<std::byte, 8> size{};
  for (std::size_t i = 0; i < size.size(); ++i) size[i] = static_cast<std::byte>((text.size() >> (8 * i)) & 0xffU);
  update(size);
  update(text);
}

Sha256::Digest Sha256::finish() noexcept {
  const std::uint64_t bits = length_ * 8;
  static constexpr std::array<std::byte, block_size> padding{std::byte{0x80}};
  const std::size_t used = length_ % block_size;
  update(std::span(padding).first(used < 56 ? 56 - used : 120 - used));
  std::array<std::byte, 8> size{};
  for (std::size_t i = 0; i < size.size(); ++i) size[i] = static_cast<std::byte>((bits >> (56 - 8 * i)) & 0xffU);
  update(size);
  Digest digest{};
  for (std::size_t i = 0; i < digest.size(); ++i)
    digest[i] = static_cast<std::byte>((state_[i / 4] >> (24 - 8 * (i % 4))) & 0xffU);
  return digest;
}

std::string to_hex(const Sha256::Digest& digest) {
  static constexpr std::string_view digits = "0123456789abcdef";
  std::string text;
  text.reserve(2 * digest.size());
  for (const std::byte byte : digest) {
    text += digits[std::to_integer<std::size_t>(byte >> 4U)];
    text += digits[std::to_integer<std::size_t>(byte & std::byte{0xf})];
  }
  return text;
}

}  // namespace cox::detail
