#include <coxswain/runtime/kept/kept_checksum.hpp>

#include <coxswain/runtime/base/fnv1a.hpp>

#include <bit>
#include <cstring>

namespace cox {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::uint64_t mix(std::uint64_t word) noexcept {
  word = (word ^ (word >> 30U)) * 0xbf58476d1ce4e5b9U;
  word = (word ^ (word >> 27U)) * 0x94d049bb133111ebU;
  return word ^ (word >> 31U);
}

}  // namespace

std::uint64_t checksum_of(std::span<const std::byte> memory) noexcept {
  constexpr std::size_t word_size = sizeof(std::uint64_t);
  std::uint64_t sum = 0;
  std::uint64_t position = checksum_step;
  std::uint64_t word = 0;
  std::size_t at = 0;
  for (; memory.size() - at >= word_size; at += word_size, position += checksum_step) {
    std::memcpy(&word, memory.data() + at, word_size);
    sum += mix(word + position);
  }
  if (at == memory.size()) return sum;
  word = 0;
  std::memcpy(&word, memory.data() + at, memory.size() - at);
  return sum + mix(word + position);
}

std::uint64_t checksum_name(std::string_view name) noexcept {
  const std::uint64_t hash = detail::fnv1a(name);
  return hash != 0 ? hash : 1;
}

}  // namespace cox
