#include <coxswain/runtime/handle/memory_usage.hpp>

#include <coxswain/runtime/base/byte_count.hpp>

#include <array>
#include <cstdio>

namespace cox {
namespace {

std::string percent_of(std::size_t part, std::size_t whole) {
  if (whole == 0) return "0.0 %";
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f %%", 100.0 * static_cast<double>(part) / static_cast<double>(whole));
  return text.data();
}

}  // namespace

MemoryUsage& MemoryUsage::operator+=(const MemoryUsage& other) noexcept {
  number_allocs += other.number_allocs;
  bytes_in_use += other.bytes_in_use;
  bytes_padding += other.bytes_padding;
  bytes_reserved += other.bytes_reserved;
  peak_bytes_in_use += other.peak_bytes_in_use;
  peak_bytes_reserved += other.peak_bytes_reserved;
  return *this;
}

std::string to_string(const MemoryUsage& usage) {
  return std::to_string(usage.number_allocs) + " allocations: in use " + format_byte_count(usage.bytes_in_use) + " (" +
         percent_of(usage.bytes_in_use, usage.bytes_reserved) + "), padding " + format_byte_count(usage.bytes_padding) +
         " (" + percent_of(usage.bytes_padding, usage.bytes_reserved) + "), reserved " +
         format_byte_count(usage.bytes_reserved) + "; peak in use " + format_byte_count(usage.peak_bytes_in_use) +
         ", peak reserved " + format_byte_count(usage.peak_bytes_reserved);
}

}  // namespace cox
