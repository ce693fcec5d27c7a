#include <coxswain/servers/host/memory/host_memory.hpp>

#include <algorithm>
#include <bit>

namespace cox::detail {
namespace {

// Bytes: eight times the capacity, but not more than `plenty` or the capacity itself, whichever is larger.
std::size_t address_space_of(std::size_t capacity) noexcept {
  constexpr std::size_t plenty = std::size_t{1} << 44U;
  return capacity < plenty / 8 ? 8 * capacity : std::max(capacity, plenty);
}

}  // namespace

std::size_t host_granularity(std::size_t capacity) noexcept {
  return std::clamp<std::size_t>(std::bit_floor(capacity / 1024), 4096, std::size_t{2} << 20U);
}

MemoryPoolOptions host_pool_options(std::size_t capacity, std::size_t alignment) noexcept {
  return {.alignment = alignment, .capacity = capacity, .address_space = address_space_of(capacity)};
}

}  // namespace cox::detail
